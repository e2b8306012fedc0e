// What a program waits for before its kernels run for the first time.
//
// Twelve kernels (or as many as the argument says) of moderate size, each another pipeline, are compiled by Halide
// beforehand and launched once each, with a device_sync behind each launch: what is timed is the making of the device,
// the driver's compilation, and the launch itself. The same launches once more say what of that is the launch. Results
// are compared with the CPU's.
//
// One process measures once: a first time cannot be repeated. tools/first_launch.py starts it often, with an empty and
// a filled pipeline cache, and on every runtime there is. The figures go to standard output as one line of JSON.

#include "bench_device.h"
#include "bench_target.h"

#include <Halide.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace Halide;

namespace {

constexpr int kSize = 256;

double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s failed with code %d\n", what, code);
    exit(1);
}

// A 5 x 5 filter of a polynomial: some hundred instructions and a stage in shared memory, as image code has.
Func kernel(int number, ImageParam input, const Target *gpu) {
    Var x("x"), y("y"), xo("xo"), yo("yo"), xi("xi"), yi("yi");
    Func curve("curve"), filter("filter");
    Expr v = input(clamp(x, 0, kSize - 1), clamp(y, 0, kSize - 1));
    curve(x, y) = ((v * 0.25f + float(number)) * v - 0.5f) * v + 1.0f / float(number + 1);
    Expr sum = 0.0f;
    for (int dy = -2; dy <= 2; dy++) {
        for (int dx = -2; dx <= 2; dx++) sum += curve(x + dx, y + dy) * float((number + dx * 3 + dy * 5) % 7);
    }
    filter(x, y) = sum;
    if (gpu) {
        filter.gpu_tile(x, y, xo, yo, xi, yi, 16, 16);
        curve.compute_at(filter, xo).gpu_threads(x, y);
    }
    return filter;
}

}  // namespace

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 12;
    if (count < 2) {
        fprintf(stderr, "usage: %s [KERNELS, 2 at least]\n", argv[0]);
        return 2;
    }
    const Target target = bench::target_from_environment();
    const DeviceAPI api = target.get_required_device_api();
    const halide_device_interface_t *device = get_device_interface_for_device_api(api, target);
    ImageParam input(Float(32), 2, "input");
    std::vector<Callable> kernels;
    for (int i = 0; i < count; i++) kernels.push_back(kernel(i, input, &target).compile_to_callable({input}, target));
    Buffer<float> in(kSize, kSize), out(kSize, kSize);
    in.for_each_element([&](int x, int y) { in(x, y) = float((x * 7 + y * 13) % 64) / 64.0f; });
    in.set_host_dirty();

    const double begin = now_ms();
    must(in.device_malloc(api, target), "device_malloc");
    must(out.device_malloc(api, target), "device_malloc");
    const double made = now_ms();
    std::vector<double> first(count), again(count);
    bool right = true;
    for (std::vector<double> *times : {&first, &again}) {
        for (int i = 0; i < count; i++) {
            const double start = now_ms();
            must(kernels[i](in, out), "launch");
            must(out.device_sync(), "device_sync");
            (*times)[i] = now_ms() - start;
            if (times == &again) continue;
            must(out.copy_to_host(), "copy_to_host");
            input.set(in);
            Buffer<float> wanted = kernel(i, input, nullptr).realize({kSize, kSize}, get_host_target());
            out.for_each_element([&](int x, int y) {
                const float error = std::abs(out(x, y) - wanted(x, y));
                right = right && error <= 1e-4f * std::max(1.0f, std::abs(wanted(x, y)));
            });
        }
    }
    in.device_free();
    out.device_free();
    const double before_release = now_ms();
    device->device_release(nullptr, device);
    const double released = now_ms();

    double others = 0, once_more = 0;
    for (int i = 1; i < count; i++) others += first[i];
    for (double one : again) once_more += one;
    const bool vulkan = target.has_feature(Target::Vulkan);
    printf("{\"runtime\": \"%s\", \"device\": \"%s\", \"driver\": \"%s\", \"device_ms\": %.3f, \"first_ms\": %.3f, "
           "\"others_ms\": %.3f, \"again_ms\": %.3f, \"release_ms\": %.3f, \"right\": %s}\n",
           vulkan ? bench::vulkan_runtime_file().c_str() : "cuda",
           (vulkan ? bench::vulkan_device_names() : bench::cuda_device_names()).c_str(),
           vulkan ? bench::vulkan_driver_names().c_str() : "", made - begin, first[0], others / (count - 1),
           once_more / count, released - before_release, right ? "true" : "false");
    return right ? 0 : 1;
}
