"""Ray: a transport that hands arrays from actor to actor by `share`. Importing this module registers it in Ray.

Ray calls the interface alpha; it is that of Ray 2.60. The transport's name is "gpuinterop". Import the module before
you make actors, and make them with ``enable_tensor_transport=True``. Sender and receiver then have one memory, on the
host or on one GPU, and both see writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.experimental import register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)
from ray.util.serialization import register_serializer

from gpuinterop import _core, errors
from gpuinterop.ndarray import CudaNdarray, GpuArray
from gpuinterop.processes.handles import Handle, share

NAME = "gpuinterop"


@dataclass
class Shared(TensorTransportMetadata):  # type: ignore[misc]
    """What Ray sends to the receiver: a handle for each array, and the machine where they can be opened."""

    handles: list[Handle] | None = None
    node: str = ""


class Transport(TensorTransportManager):  # type: ignore[misc]
    """Shares the arrays of an object when its actor returns it, and opens them where Ray needs it."""

    def __init__(self) -> None:
        self._handles: dict[str, list[Handle]] = {}  # kept until Ray frees the object

    @property
    def tensor_transport_backend(self) -> str:
        """The name of the transport; Ray writes names in capitals."""
        return NAME.upper()

    @staticmethod
    def is_one_sided() -> bool:
        """Return True: the receiver opens the memory, and the sender's actor goes on."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Return True: opening waits for nothing, so Ray need not end the actors after an error."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Return True, because Ray registers the transport in each actor."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Shared:
        """Share the arrays of an object. Memory that cannot be shared is copied, which `no_copies` forbids."""
        handles = [share(x, copyif=True) for x in rdt_object]
        self._handles[obj_id] = handles
        device = rdt_object[0].device.type if rdt_object else None
        meta = [(handle.shape, handle.dtype) for handle in handles]
        return Shared(meta, device, handles, ray.get_runtime_context().get_node_id())

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Return nothing that the two sides need."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Shared, communicator_metadata: Any,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Open the arrays of an object. Ray itself refuses target buffers that are not torch's."""
        if tensor_transport_metadata.node != ray.get_runtime_context().get_node_id():
            raise errors.ExchangeError(
                where="gpuinterop.ray", expected="two actors on one machine, because the transport shares memory",
                got="actors on two machines", fix="return the array without tensor_transport=, so that Ray copies it",
            )  # fmt: skip
        return [handle.open() for handle in tensor_transport_metadata.handles or ()]

    def send_multiple_tensors(self, tensors: Any, *metadata: Any) -> None:
        """Do nothing; Ray does not call it for one-sided transports."""

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: Any) -> None:
        """Withdraw the handles of an object. Arrays that are open elsewhere stay valid."""
        self._handles.pop(obj_id, None)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Do nothing, because no transfer is ever under way."""


def _as_gpu_array(x: Any) -> Any:
    return _core.view(GpuArray, x)


def _as_cuda_ndarray(x: Any) -> Any:
    return _core.view(CudaNdarray, x)


# Ray takes exactly one class out of the values that it sends. So the other one travels as a view of that class.
register_tensor_transport(NAME, ["cpu", "cuda"], Transport, GpuArray)
register_serializer(CudaNdarray, serializer=_as_gpu_array, deserializer=_as_cuda_ndarray)
