"""Stream objects of other libraries, each by the attribute that names its handle; none owns its stream."""


class Torch:
    def __init__(self, handle):
        self.cuda_stream = handle


class CuPy:
    device_id = 0

    def __init__(self, handle):
        self.ptr = handle


class PyCUDA:
    def __init__(self, handle):
        self.handle = handle


class Protocol:
    def __init__(self, handle):
        self._handle = handle

    def __cuda_stream__(self):
        return (0, self._handle)


class Attribute:
    def __init__(self, handle):
        self.__dict__["__cuda_stream__"] = (0, handle)
