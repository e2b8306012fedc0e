// Compiles the pipelines of the AOT tests and their runtime, as a project's generator does at build time.
//
//   gpu_aot_generate FOLDER [FEATURE]
//
// FEATURE is one more feature of the pipelines' target: with `asan` or `tsan` their host code is instrumented, for
// test/native. host_runtime.a is Halide's own runtime without any device API; a natively compiled Vulkan runtime is put
// beside it there.
//
// Runs with libHalideVulkan.so in front of libHalide, so that the runtime archive holds our runtime; the programs that
// link it need nothing in front of anything. The pipelines carry no runtime of their own, and take a user context, by
// which an application chooses among its devices.

#include "Halide.h"

#include <cstdio>

using namespace Halide;

namespace {

std::string one_more_feature;

Target pipeline_target() {
    return Target("host-vulkan-vk_v13-vk_int8-vk_int16-vk_int64-no_runtime-user_context" + one_more_feature);
}

// out(x) = input(x) * 2 + salt, through a device-only intermediate.
void double_and_add(const std::string &folder) {
    Var x("x"), xi("xi");
    ImageParam input(Int(32), 1, "input");
    Param<int> salt("salt");
    Func doubled("doubled"), f("double_and_add");
    doubled(x) = input(x) * 2;
    f(x) = doubled(x) + salt;
    doubled.compute_root().gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    f.compile_to_static_library(folder + "/double_and_add", {input, salt}, "double_and_add", pipeline_target());
}

// A 3 x 3 blur of bytes with a shared-memory stage.
void blur(const std::string &folder) {
    Var x("x"), y("y"), xo("xo"), yo("yo"), xi("xi"), yi("yi");
    ImageParam input(UInt(8), 2, "input");
    Func wide("wide"), rows("rows"), f("blur");
    wide(x, y) = cast<uint16_t>(input(x, y));
    rows(x, y) = wide(x, y) + wide(x + 1, y) + wide(x + 2, y);
    f(x, y) = cast<uint8_t>((rows(x, y) + rows(x, y + 1) + rows(x, y + 2)) / 9);
    f.gpu_tile(x, y, xo, yo, xi, yi, 16, 8, TailStrategy::GuardWithIf);
    rows.compute_at(f, xo).gpu_threads(x, y);
    f.compile_to_static_library(folder + "/blur", {input}, "blur", pipeline_target());
}

// out(x) = sin(x) + sin(x + 0.001) + ..., terms of them: code that takes a driver's compiler some time.
void sines(const std::string &folder) {
    Var x("x"), xi("xi");
    Param<int> terms("terms");
    RDom r(0, terms);
    Func f("sines");
    f(x) = 0.f;
    f(x) += sin(cast<float>(r) * 0.001f + x);
    f.gpu_tile(x, xi, 8, TailStrategy::GuardWithIf);
    f.update().gpu_tile(x, xi, 8, TailStrategy::GuardWithIf);
    f.compile_to_static_library(folder + "/sines", {terms}, "sines", pipeline_target());
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: gpu_aot_generate FOLDER [FEATURE]\n");
        return 2;
    }
    if (argc == 3) one_more_feature = std::string("-") + argv[2];
    try {
        double_and_add(argv[1]);
        blur(argv[1]);
        sines(argv[1]);
        compile_standalone_runtime(std::string(argv[1]) + "/runtime.a", pipeline_target());
        compile_standalone_runtime(std::string(argv[1]) + "/host_runtime.a", Target("host"));
    } catch (const Error &error) {
        std::fprintf(stderr, "gpu_aot_generate: %s\n", error.what());
        return 1;
    }
    return 0;
}
