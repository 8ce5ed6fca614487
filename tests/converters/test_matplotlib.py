"""Matplotlib draws gpuinterop arrays, alone and with NumPy's, as it draws NumPy arrays."""

import numpy as np
import pytest

import gpuinterop as gi

matplotlib = pytest.importorskip("matplotlib")

N = np.linspace(0.5, 3, 4)
M = np.arange(12.0).reshape(3, 4)
AXES = {
    "plot": lambda ax, x, m: (ax.plot(N, x), ax.plot(x, N), ax.plot(x[::-1], x, "o")),
    "bar": lambda ax, x, m: (ax.bar(N, x), ax.bar(x, N, bottom=x, yerr=N), ax.barh(x, x, left=N)),
    "errorbar": lambda ax, x, m: (ax.errorbar(N, x, yerr=x), ax.errorbar(x, N, xerr=N, yerr=x)),
    "fill_between": lambda ax, x, m: (
        ax.fill_between(N, x), ax.fill_between(x, N, x * 2, where=x > 1), ax.fill_betweenx(x, N, 0)
    ),
    "fill": lambda ax, x, m: ax.fill(x, N),
    "scatter": lambda ax, x, m: (ax.scatter(N, x, c=x, s=N), ax.scatter(x, N, s=x)),
    "hist": lambda ax, x, m: ax.hist(x),
    "imshow": lambda ax, x, m: ax.imshow(m),
    "contour": lambda ax, x, m: (ax.contour(m), ax.contourf(x, N[:3], m)),
    "quiver": lambda ax, x, m: ax.quiver(x, N, x, N),
    "stem": lambda ax, x, m: (ax.stem(N, x), ax.step(x, N), ax.vlines(N, x, 0), ax.hlines(x, 0, N)),
}  # fmt: skip
AXES_3D = {
    "plot": lambda ax, x, m: (ax.plot(x, N, x), ax.plot(N, x)),
    "scatter": lambda ax, x, m: (ax.scatter(N, x, N), ax.scatter(x, N)),
    "bar3d": lambda ax, x, m: (ax.bar3d(N, x, 0, 1, 1, x), ax.bar(x, N, zs=0)),
    "surface": lambda ax, x, m: ax.plot_surface(x[None], N[:3, None], m),
    "wireframe": lambda ax, x, m: ax.plot_wireframe(N[None], x[:3, None], m),
    "trisurf": lambda ax, x, m: ax.plot_trisurf(x, N**2, N),
    "errorbar": lambda ax, x, m: (ax.errorbar(x, N, x, zerr=N), ax.stem(x, N, x)),
}


def picture(draw, x, m, projection):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2), dpi=50)
    canvas = FigureCanvasAgg(figure)
    draw(figure.add_subplot(projection=projection), x, m)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


@pytest.mark.parametrize(
    ("projection", "name"), [*((None, n) for n in AXES), *(("3d", n) for n in AXES_3D)]
)
def test_plots(device, projection, name):
    draw = (AXES_3D if projection else AXES)[name]
    x, m = (gi.asarray(host, device=device) for host in (N, M))
    seen = picture(draw, x, m, projection)
    np.testing.assert_array_equal(seen, picture(draw, N, M, projection))
