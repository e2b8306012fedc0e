// A small generator of two GPU stages; GenGen's main comes with the wheel. See test_aot.py.

#include <Halide.h>

class PackageAot : public Halide::Generator<PackageAot> {
public:
    Input<Buffer<int32_t, 2>> input{"input"};
    Output<Buffer<int32_t, 2>> output{"output"};

    void generate() {
        Halide::Func rows;
        rows(x, y) = input(x, y) * 3;
        output(x, y) = rows(x, y) + x + 2 * y;
        Halide::Var xi, yi;
        output.gpu_tile(x, y, xi, yi, 8, 8);
        rows.compute_root().gpu_tile(x, y, xi, yi, 8, 8);
    }

private:
    Halide::Var x, y;
};

HALIDE_REGISTER_GENERATOR(PackageAot, package_aot)
