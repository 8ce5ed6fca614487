"""An owner of shared memory that answers an opener with what it should not."""

import os
import socket
import threading

import gpuinterop as gi


def parts(handle):
    function, (address, token, shown) = handle.__reduce__()
    return function, address, token, shown


class FalseOwner:
    """A faulty owner of the same user, which answers once: with the descriptors `given`, or a file of 96 bytes."""

    def __init__(self, text, given=None):
        self.text, self.given = text, given
        self.address = f"gpuinterop-{os.getpid()}-{os.urandom(8).hex()}"

    def answer_once(self):
        memory = os.memfd_create("test")
        os.ftruncate(memory, 96)
        with self.listener.accept()[0] as connection:
            connection.recv(64)
            socket.send_fds(connection, [self.text], [memory] if self.given is None else self.given)
            os.close(memory)
            connection.settimeout(10)
            try:
                self.end = connection.recv(1)
            except ConnectionResetError:  # the opener has closed it before it read the text
                self.end = b""

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"\0{self.address}")
        self.listener.listen()
        self.thread = threading.Thread(target=self.answer_once)
        self.thread.start()
        make, _, token, shown = parts(gi.share(gi.shared_empty(24, device="cpu")))
        return make(self.address, token, shown)

    def __exit__(self, *error):
        self.thread.join(10)
        self.listener.close()
        assert not self.thread.is_alive()
        assert self.end == b""  # the opener has closed the connection
