"""A local Laplacian filter in Halide: one algorithm, one schedule for a GPU and one for the CPU.

The filter (Paris, Hasinoff and Kautz 2011, in the fast form of Aubry and others 2014) brings out detail without halos:
the picture is remapped around each of a few grey levels, each of these becomes a Laplacian pyramid, and every output
coefficient is taken from the pyramids of the two levels next to the local brightness. It is the kind of pipeline that a
GPU backend lives or dies by: some thirty kernels, each dependent on the one before, most of them over images so small
that the cost of asking for a kernel is all there is.

Sizes are constants of the pipeline and every level clamps at its own edges, so no stage computes more than its level.
No operation here is approximate on either side (no exp, no pow), so GPU and CPU can be compared closely.
"""

import dataclasses

import halide as hl

# Burt and Adelson's five-tap binomial filter.
BINOMIAL = ((-2, 1), (-1, 4), (0, 6), (1, 4), (2, 1))


@dataclasses.dataclass(frozen=True)
class Look:
    """What the picture should become. Distances are of brightness, from 0 to 1."""

    grey_levels: int = 8
    pyramid_levels: int = 6
    detail: float = 1.2  # how much small differences are enlarged
    edge: float = 0.25  # differences above this are edges and keep their size


class LocalLaplacian:
    """The pipeline for pictures of one size. `stages` are the functions that become kernels of their own, in order."""

    def __init__(self, width, height, look=Look()):
        levels = look.pyramid_levels
        while levels > 1 and min(width, height) >> (levels - 1) < 4:
            levels -= 1
        self.sizes = [(-(-width >> j), -(-height >> j)) for j in range(levels)]
        self.look = look
        self.stages = []
        self.input = hl.ImageParam(hl.UInt(8), 3, "input")
        for i, extent in enumerate((width, height, 3)):
            self.input.dim(i).set_bounds(0, extent)
        self.x, self.y, self.k, self.c = hl.Var("x"), hl.Var("y"), hl.Var("k"), hl.Var("c")
        self.output = self._build()
        for i, extent in enumerate((width, height, 3)):
            self.output.output_buffer().dim(i).set_bounds(0, extent)

    def _build(self):
        x, y, k, c = self.x, self.y, self.k, self.c
        levels, last = len(self.sizes), self.look.grey_levels - 1

        colour = hl.Func("colour")
        colour[x, y, c] = hl.f32(self.input[x, y, c]) / 255.0
        red, green, blue = (colour[x, y, i] for i in range(3))
        luma = hl.f32(0.299) * red + hl.f32(0.587) * green + hl.f32(0.114) * blue
        grey = self._stage("grey", [x, y], luma)

        # The picture as each grey level sees it: near differences enlarged, far ones kept.
        difference = grey[x, y] - hl.f32(k) / float(last)
        nearness = 1.0 - hl.min(hl.abs(difference) / hl.f32(self.look.edge), 1.0)
        remapped = hl.Func("remapped")
        remapped[x, y, k] = grey[x, y] + hl.f32(self.look.detail) * difference * nearness * nearness

        brightness, seen = [grey], [remapped]
        for j in range(1, levels):
            brightness.append(self._reduced(f"brightness{j}", brightness[-1], [], j))
            seen.append(self._reduced(f"seen{j}", seen[-1], [k], j))

        # From the coarsest level down: what was built so far, enlarged, plus this level's detail.
        result = None
        for j in reversed(range(levels)):
            position = hl.clamp(brightness[j][x, y], 0.0, 1.0) * float(last)
            below = hl.clamp(hl.i32(position), 0, last - 1)
            part = position - hl.f32(below)
            detail = hl.Func(f"detail{j}")
            if result is None:
                detail[x, y, k] = seen[j][x, y, k]
            else:
                detail[x, y, k] = seen[j][x, y, k] - self._enlarged(seen[j + 1], [k], j + 1)
            value = (1.0 - part) * detail[x, y, below] + part * detail[x, y, below + 1]
            if result is not None:
                value += self._enlarged(result, [], j + 1)
            result = self._stage(f"result{j}", [x, y], value)

        # Colours keep their proportions. The floor keeps black from being divided by itself.
        floor = hl.f32(0.01)
        gain = (result[x, y] + floor) / (grey[x, y] + floor)
        shown = hl.clamp(colour[x, y, c] * gain, 0.0, 1.0)
        return self._stage("output", [x, y, c], hl.u8(shown * 255.0 + 0.5))

    def _stage(self, name, variables, value):
        f = hl.Func(name)
        f[tuple(variables)] = value
        self.stages.append((f, len(variables)))
        return f

    def _reduced(self, name, f, rest, level):
        """Half the size: the binomial filter along x, then along y, every second pixel kept."""
        x, y = self.x, self.y
        width, height = self.sizes[level - 1]
        along_x = sum((w / 16.0) * f[(hl.clamp(2 * x + d, 0, width - 1), y, *rest)] for d, w in BINOMIAL)
        narrow = self._stage(name + "_x", [x, y, *rest], along_x)
        along_y = sum((w / 16.0) * narrow[(x, hl.clamp(2 * y + d, 0, height - 1), *rest)] for d, w in BINOMIAL)
        return self._stage(name, [x, y, *rest], along_y)

    def _enlarged(self, f, rest, level):
        """The value at (x, y) of twice the size: the same filter between the pixels of the smaller image."""
        x, y = self.x, self.y
        width, height = self.sizes[level]

        def taps(v, extent):
            # An even pixel sits on one of the smaller image (1 6 1), an odd one between two (4 4).
            middle, odd = v / 2, (v % 2) == 1
            near = [hl.clamp(middle + d, 0, extent - 1) for d in (-1, 0, 1)]
            return zip(near, [hl.select(odd, o, e) for o, e in ((0.0, 0.125), (0.5, 0.75), (0.5, 0.125))])

        return sum(
            wx * wy * f[(px, py, *rest)] for py, wy in taps(y, height) for px, wx in taps(x, width)
        )

    def schedule_for_gpu(self):
        x, y = self.x, self.y
        for f, dimensions in self.stages:
            xo, yo, xi, yi = hl.Var("xo"), hl.Var("yo"), hl.Var("xi"), hl.Var("yi")
            f.compute_root().tile(x, y, xo, yo, xi, yi, 16, 8, hl.TailStrategy.GuardWithIf)
            f.gpu_blocks(*([xo, yo, f.args()[2]] if dimensions == 3 else [xo, yo])).gpu_threads(xi, yi)

    def schedule_for_cpu(self):
        for f, _ in self.stages:
            f.compute_root().parallel(self.y, 8, hl.TailStrategy.GuardWithIf)
            f.vectorize(self.x, 8, hl.TailStrategy.GuardWithIf)

    def compile(self, target):
        if target.has_gpu_feature():
            self.schedule_for_gpu()
        else:
            self.schedule_for_cpu()
        return self.output.compile_to_callable([self.input], target)
