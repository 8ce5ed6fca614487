"""How many examples the property tests try."""

import os

from doubles.on_fake import FAKE
from hypothesis import HealthCheck, settings

# GPUINTEROP_SOAK multiplies the number of examples: the quick suite runs a quarter of them, `make soak` many
# more, and CI a fraction where it repeats the suite on another build. A kernel of the fake driver takes
# about a hundred times as long as the same operation on the host.
SOAK = float(os.environ.get("GPUINTEROP_SOAK", "0.25"))


def examples(count: int):
    return settings(
        max_examples=max(1, int(count * SOAK / (4 if FAKE else 1))),
        deadline=None,
        derandomize=SOAK <= 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
