"""TLS of a session's ports, by a certificate and its key; names of the options are vLLM's."""
import ssl

from simulator.errors import InputErrors

CERTIFICATE, KEY = "--ssl-certfile", "--ssl-keyfile"


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the context of a server; None: no certificate is given.

    certificate : PEM file, with those of its issuers behind it. key : PEM file; None: the key is in the certificate's.

    Raises InputErrors: a file cannot be read, the key is another's or needs a password, or there is a key alone.
    """
    if certificate is None:
        if key is not None:
            raise InputErrors([f"{KEY} {key}: expected {CERTIFICATE} with it"])
        return None
    for option, path in ((CERTIFICATE, certificate), (KEY, key)):
        try:
            if path is not None:
                with open(path, "rb"):
                    pass
        except OSError as error:
            raise InputErrors([f"{option} {path}: cannot be read: {error.strerror}"]) from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")      # else OpenSSL asks at the terminal
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InputErrors([f"{CERTIFICATE} {certificate}{'' if key is None else f', {KEY} {key}'}: expected a "
                           f"certificate and its key without a password, as PEM: {error}"]) from None
    return context
