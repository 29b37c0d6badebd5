"""Limit on the size of a compressed file's content."""
import gzip
import io

LEAST_LIMIT, MOST_FOLD = 2**28, 100         # text compresses to a tenth; a hundredfold content is repetition


def limit_of(compressed_bytes: int) -> int:
    """Return the most bytes to which a file of `compressed_bytes` may expand."""
    return max(LEAST_LIMIT, MOST_FOLD * compressed_bytes)


def unpacked(data: bytes) -> bytes:
    """Return the content of gzip data.

    Raises
    ------
    OSError
        The data are damaged, or expand beyond `limit_of`.
    """
    limit = limit_of(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise OSError(f"more than {limit:,} bytes, {limit / len(data):,.0f} times what they take here")
    return text
