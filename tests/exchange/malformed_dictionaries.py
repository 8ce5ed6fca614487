"""Array dictionaries whose entries are wrong (49 to 55)."""

from __future__ import annotations

from malformed_table import BOTH, case, take
from peers import ADDRESS, interface

# ---- 49 to 55: dictionaries ------------------------------------------------------------------------

for door in ("__cuda_array_interface__", "__array_interface__"):
    for key in ("shape", "typestr", "version"):
        case(f"49 {door} without {key}", TypeError, key)(
            lambda door=door, key=key: take(interface(door, drop=[key]))
        )
    for bad_data in ((8,), (None, False), (True, False), (-8, False), (2**64, False), ("8", False)):
        case(f"50 {door} data {bad_data!r}", TypeError, "data")(
            lambda door=door, bad_data=bad_data: take(interface(door, data=bad_data))
        )
    case(f"51 {door} version None", TypeError, "version")(
        lambda door=door: take(interface(door, version=None))
    )
    case(f"52 {door} with a mask", NotImplementedError, "mask")(
        lambda door=door: take(interface(door, mask=interface(door)))
    )
    case(f"53 {door} with too few strides", ValueError, "2 strides")(
        lambda door=door: take(interface(door, strides=(4,)))
    )
    case(f"53 {door} with too many strides", ValueError, "2 strides")(
        lambda door=door: take(interface(door, strides=(12, 4, 4)))
    )
    case(f"49 {door} that is no dictionary", TypeError, "dictionary")(
        lambda door=door: take(type("Odd", (), {door: 3})())
    )
    case(f"13 {door} with a negative extent", ValueError, "-2")(
        lambda door=door: take(interface(door, shape=(-2, 3)))
    )
    case(f"14 {door} with extents of 2**70", ValueError, "63 bits")(
        lambda door=door: take(interface(door, shape=(2**70, 3)))
    )
    for typestr in ("f4", "<f", "<x4", "", 4, "<f4x", "<f99999999999999999999"):
        case(f"30 {door} typestr {typestr!r}", TypeError, "typestr")(
            lambda door=door, typestr=typestr: take(interface(door, typestr=typestr))
        )
case("49 CAI without data", TypeError, "data")(lambda: take(interface(drop=["data"])))
case("50 CAI data as an int", TypeError, "data")(lambda: take(interface(data=ADDRESS)))
case("51 version 4 with a new key", ValueError, "version 4")(
    lambda: take(interface(version=4, future=1))
)
case("51 version -1", TypeError, "version")(lambda: take(interface(version=-1)))
case("54 stream 0", ValueError, "stream")(lambda: take(interface(stream=0)))
case("54 a bool as stream", TypeError, "stream")(lambda: take(interface(stream=True)))


class Grudging:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")


case("55 an attribute that raises", BOTH, "requires grad")(lambda: take(Grudging()))
