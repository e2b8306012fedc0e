// gpu_instructions: operations whose instructions are counted, to be run under valgrind's callgrind.
//
//   valgrind --tool=callgrind --instr-atstart=no --collect-atstart=no ... gpu_instructions
//
// Each operation warms up, is counted kCount times, and is followed by a dump named after it; test_instructions.py
// starts this program and says what is made of the dumps. The results are checked: what does not work need not be fast.
// Pipeline, Halide's runtime and ours lie in one shared library, whose instructions are told from this program's and
// the driver's by its name.

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "HalideRuntimeVulkan.h"
#include "plain_launch.h"

#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>

using Halide::Runtime::Buffer;

namespace {

// Ten whole batches of 64 commands, so that the share of a submission in each operation is the same in every run.
constexpr int kCount = 640;

void must(int code, const char *what) {
    if (code == 0) return;
    std::fprintf(stderr, "%s failed with code %d\n", what, code);
    std::exit(1);
}

struct Image : Buffer<float, 3> {
    explicit Image(float value) : Buffer<float, 3>(64, 64, 4) {
        fill(value);
        set_host_dirty();
    }
};

const halide_device_interface_t *device() { return halide_vulkan_device_interface(); }
void sync(Image &image) { must(image.device_sync(nullptr), "device_sync"); }
void launch(Image &in, float offset, Image &out) { must(plain_launch(in, offset, out), "launch"); }
void upload(Image &image, int i) {
    image(0, 0, 0) = (float)i;
    image.set_host_dirty();
    must(image.copy_to_device(device()), "copy_to_device");
}
void download(Image &image) {
    image.set_device_dirty();
    must(image.copy_to_host(), "copy_to_host");
}
// Looking through a Buffer<float> would mark it as newer than the device.
void expect(const Buffer<const float, 3> &image, int x, int y, int c, float want) {
    if (image(x, y, c) == want) return;
    std::fprintf(stderr, "(%d, %d, %d) is %g instead of %g\n", x, y, c, image(x, y, c), want);
    std::exit(1);
}

template<typename Operation>
void count(const char *name, Image &image, Operation operation) {
    for (int i = 0; i < kCount; i++) operation(i);
    sync(image);
    CALLGRIND_START_INSTRUMENTATION;
    // Callgrind learns the shape of the code, and the driver its own, before anything counts.
    for (int i = 0; i < 64; i++) operation(i);
    sync(image);
    CALLGRIND_TOGGLE_COLLECT;
    for (int i = 0; i < kCount; i++) operation(i);
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
    sync(image);
    std::printf("%s %d\n", name, kCount);
}

}  // namespace

int main() {
    Image in(1), a(1), b(0),
        many[16] = {Image(0), Image(0), Image(0), Image(0), Image(0), Image(0), Image(0), Image(0),
                    Image(0), Image(0), Image(0), Image(0), Image(0), Image(0), Image(0), Image(0)};
    for (Image &image : many) launch(in, 0, image);

    // Each launch reads what the one before it wrote. x -> 2 x - 1 leaves the 1 in `a` what it is.
    count("launch_dependent", a, [&](int i) { i % 2 ? launch(b, -1, a) : launch(a, -1, b); });
    download(a);
    expect(a, 5, 6, 3, 1);

    count("launch_independent", a, [&](int i) { launch(in, (float)i, many[i % 16]); });
    for (int i = 0; i < 16; i++) {
        download(many[i]);
        expect(many[i], 63, 63, 3, 2.0f + kCount - 16 + i);
    }
    count("launch_sync", a, [&](int i) { launch(in, (float)i, a), sync(a); });
    count("idle_sync", a, [&](int) { sync(a); });
    download(a);
    expect(a, 0, 0, 0, 2.0f + kCount - 1);

    Buffer<uint8_t, 1> bytes(nullptr, 65536);
    count("malloc_free", a, [&](int) {
        must(bytes.device_malloc(device()), "device_malloc");
        must(bytes.device_free(), "device_free");
    });
    // Nothing uses the buffer: on a device that the CPU can write to, a copy by the CPU.
    count("upload_64k", a, [&](int i) { upload(in, i); });
    // The launch before it reads the buffer: through staging.
    count("launch_upload_64k", a, [&](int i) { launch(in, 0, b), upload(in, i); });
    count("download_64k", a, [&](int) { download(in); });
    expect(in, 0, 0, 0, kCount - 1);
    count("upload_launch_download", a, [&](int i) {
        upload(in, i);
        launch(in, (float)i, a);
        must(a.copy_to_host(), "copy_to_host");
        expect(a, 0, 0, 0, 3.0f * i);
        expect(a, 63, 63, 3, 2.0f + i);
    });
    return 0;
}
