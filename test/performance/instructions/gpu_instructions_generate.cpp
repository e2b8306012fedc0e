// Compiles the pipeline whose cost gpu_instructions.cpp counts, and the runtime it is counted with.
//
//   gpu_instructions_generate FOLDER
//
// Runs with libHalideVulkan.so in front of libHalide, so the archive holds our runtime. The processor is named and not
// "host": with the features of the machine at hand the same source would make other instructions on each.

#include "Halide.h"

#include <cstdio>

using namespace Halide;

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: gpu_instructions_generate FOLDER\n");
        return 2;
    }
    try {
        const std::string folder = argv[1];
        const Target target("x86-64-linux-vulkan-vk_v13-vk_int8-vk_int16-vk_int64-no_runtime");
        // 64 x 64 x 4 floats of fixed bounds, as in the benchmark's plainest row: out = 2 * in + offset.
        Var x("x"), y("y"), c("c"), xo, yo, co, xi, yi, ci;
        ImageParam in(Float(32), 3, "in");
        Param<float> offset("offset");
        Func out("plain_launch");
        out(x, y, c) = in(x, y, c) * 2.0f + offset;
        out.gpu_tile(x, y, c, xo, yo, co, xi, yi, ci, 16, 16, 1);
        const int extents[] = {64, 64, 4}, strides[] = {1, 64, 4096};
        for (int d = 0; d < 3; d++) {
            in.dim(d).set_bounds(0, extents[d]).set_stride(strides[d]);
            out.output_buffer().dim(d).set_bounds(0, extents[d]).set_stride(strides[d]);
        }
        out.compile_to_static_library(folder + "/plain_launch", {in, offset}, "plain_launch", target);
        compile_standalone_runtime(folder + "/runtime.a", target);
    } catch (const Error &error) {
        std::fprintf(stderr, "gpu_instructions_generate: %s\n", error.what());
        return 1;
    }
    return 0;
}
