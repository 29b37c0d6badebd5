"""Limit on the size of a compressed file's content."""
import gzip
import io

LEAST_LIMIT, MOST_FOLD = 2**28, 100         # text compresses to a tenth; a hundredfold content is repetition


def limit_of(compressed_bytes: int) -> int:
    """Return how many bytes a file of so many compressed ones may have."""
    return max(LEAST_LIMIT, MOST_FOLD * compressed_bytes)


def unpacked(data: bytes) -> bytes:
    """Return what gzip data hold.

    Raises
    ------
    OSError
        They are damaged, or hold more than `limit_of` says.
    """
    limit = limit_of(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise OSError(f"more than {limit:,} bytes, {limit / len(data):,.0f} times what they take here")
    return text
