// performance_async_gpu: do a GPU stage and a CPU stage of one pipeline run at the same time when Halide is told so?
//
//   performance_async_gpu [--quick] [--strict] [--json FILE]
//
// Frames go through a GPU stage and then a CPU stage. Without async, each frame is computed on the device, copied back,
// and worked on, one after another. With async the copies run ahead in a thread of their own, into a host buffer that
// holds two frames, while the CPU works on the frame before. That gains only if the runtime neither holds its context
// lock while it waits nor makes one thread wait for another's work.
//
// The size is that of the test of this name in Halide (16 frames of 800 x 800 pixels of 32 bits, best of 10), so times
// are of the same order. Every pixel of both variants is compared with plain C++. Time fails the program only with
// --strict, and then as there: async may not be more than 1.2 times slower.

#include <Halide.h>

#include "bench_device.h"
#include "bench_harness.h"
#include "bench_target.h"

using namespace Halide;

namespace {

constexpr int kRounds = 16;

// One round of a hash that no compiler can shorten: each depends on the whole result of the one before.
template<typename T>
T stir(T value, int rounds) {
    for (int i = 0; i < rounds; i++) value = value * (value + T(2 * i + 1));
    return value;
}

uint32_t pixel_of(int x, int y, int frame) { return uint32_t(x) * 2654435761u ^ uint32_t(y * 40503 + frame * 977); }

struct Shape {
    int width = 800, height = 800, frames = 16, runs = 10;
};

Callable make_pipeline(const Target &target, bool async) {
    ImageParam in(UInt(32), 3);
    Func on_gpu("on_gpu"), on_cpu("on_cpu");
    Var x, y, frame, xi, yi;
    Expr source = in(x, y, frame), fetched;
    for (int i = 0; i < kRounds; i++) source = source * (source + Expr(uint32_t(2 * i + 1)));
    on_gpu(x, y, frame) = source;
    fetched = on_gpu(x, y, frame);
    for (int i = 0; i < kRounds; i++) fetched = fetched * (fetched + Expr(uint32_t(2 * i + 1)));
    on_cpu(x, y, frame) = fetched;

    Func host_copy = on_gpu.in();
    on_cpu.parallel(y, 16).vectorize(x, 8);
    // One frame at a time on the device, in one allocation; two frames on the host.
    on_gpu.compute_at(host_copy, Var::outermost()).store_root().gpu_tile(x, y, xi, yi, 8, 8);
    host_copy.copy_to_host().compute_at(on_cpu, frame).store_root().fold_storage(frame, 2);
    if (async) host_copy.async();
    return on_cpu.compile_to_callable({in}, target);
}

bool right(const Buffer<uint32_t> &out) {
    for (int frame = 0; frame < out.dim(2).extent(); frame++) {
        for (int y = 0; y < out.dim(1).extent(); y++) {
            for (int x = 0; x < out.dim(0).extent(); x++) {
                uint32_t want = stir(stir(pixel_of(x, y, frame), kRounds), kRounds);
                if (out(x, y, frame) == want) continue;
                fprintf(stderr, "at (%d, %d, %d): %u instead of %u\n", x, y, frame, out(x, y, frame), want);
                return false;
            }
        }
    }
    return true;
}

}  // namespace

int main(int argc, char **argv) {
    Shape shape;
    bool strict = false;
    std::string json;
    for (int i = 1; i < argc; i++) {
        std::string argument = argv[i];
        if (argument == "--quick")
            shape = {200, 200, 6, 3};
        else if (argument == "--strict")
            strict = true;
        else if (argument == "--json" && i + 1 < argc)
            json = argv[++i];
        else {
            fprintf(stderr, "usage: %s [--quick] [--strict] [--json FILE]\n", argv[0]);
            return 2;
        }
    }
    Target target = bench::target_from_environment();
    bool vulkan = target.has_feature(Target::Vulkan);
    bench::Facts facts = {
        {"target", target.to_string()},
        {"device", vulkan ? bench::vulkan_device_names() : bench::cuda_device_names()},
        {"runtime", vulkan ? bench::vulkan_runtime_file() : "libHalide's CUDA runtime"},
    };
    for (const auto &[name, value] : facts) printf("%-8s %s\n", name.c_str(), value.c_str());

    Buffer<uint32_t> in(shape.width, shape.height, shape.frames);
    in.for_each_element([&](int x, int y, int frame) { in(x, y, frame) = pixel_of(x, y, frame); });

    bool all_right = true;
    std::vector<bench::Result> results;
    for (bool async : {false, true}) {
        Callable pipeline = make_pipeline(target, async);
        Buffer<uint32_t> out(shape.width, shape.height, shape.frames);
        std::vector<double> times, cpu;
        // The first run compiles kernels and uploads the input; it is not counted.
        for (int run = 0; run <= shape.runs; run++) {
            double start = bench::seconds(CLOCK_MONOTONIC), cpu_start = bench::seconds(CLOCK_PROCESS_CPUTIME_ID);
            int code = pipeline(in, out);
            if (code != 0) {
                fprintf(stderr, "the pipeline failed with code %d\n", code);
                return 1;
            }
            if (run == 0) continue;
            times.push_back(1e6 * (bench::seconds(CLOCK_MONOTONIC) - start));
            cpu.push_back(1e6 * (bench::seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_start));
        }
        bench::Result result;
        result.key = async ? "async_gpu_with" : "async_gpu_without";
        result.title = async ? "async_gpu, with async" : "async_gpu, without async";
        result.count = 1;
        result.repetitions = shape.runs;
        result.median = bench::median(times);
        result.smallest = *std::min_element(times.begin(), times.end());
        result.largest = *std::max_element(times.begin(), times.end());
        result.cpu = bench::median(cpu);  // of the whole process: the CPU stage is parallel
        result.right = right(out);
        all_right = all_right && result.right;
        results.push_back(result);
        printf("%-26s best %9.3f ms, median %9.3f ms, worst %9.3f ms%s\n", result.title.c_str(), result.smallest / 1e3,
               result.median / 1e3, result.largest / 1e3, result.right ? "" : "   WRONG RESULT");
    }
    if (!json.empty()) all_right = bench::write_json(json, facts, results) && all_right;
    bool slower = results[1].smallest > 1.2 * results[0].smallest;
    if (slower) printf("async is more than 1.2 times slower%s\n", strict ? "" : " (not an error without --strict)");
    printf("%s\n", all_right ? "all results right" : "WRONG RESULTS");
    return all_right && !(strict && slower) ? 0 : 1;
}
