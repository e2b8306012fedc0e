// A program of two objects that a generator made: a pipeline and a runtime. It has no libHalide, and no
// libHalideVulkan.so; the runtime in the object is ours if it enters itself into this program's registry.

#include "HalideBuffer.h"
#include "HalideRuntimeVulkan.h"
#include "package_aot.h"

#include <stdio.h>

// Found by name, as in libHalideVulkan.so; the program is linked with -rdynamic.
extern "C" __attribute__((visibility("default"))) uint32_t halide_vulkan_registry[1024] = {};

int main() {
    Halide::Runtime::Buffer<int32_t, 2> input(61, 37);
    Halide::Runtime::Buffer<int32_t, 2> output(61, 37);
    input.for_each_element([&](int x, int y) { input(x, y) = x * 7 + y; });
    input.set_host_dirty();
    if (int code = package_aot(input, output)) {
        printf("pipeline failed: %d\n", code);
        return 1;
    }
    if (int code = output.copy_to_host()) {
        printf("copy_to_host failed: %d\n", code);
        return 1;
    }
    int wrong = 0;
    output.for_each_element([&](int x, int y) { wrong += output(x, y) != (x * 7 + y) * 3 + x + 2 * y; });
    output.device_free();
    input.device_free();
    halide_device_release(nullptr, halide_vulkan_device_interface());
    printf("wrong %d\nruntime %s\n", wrong, halide_vulkan_registry[0] ? "ours" : "stock");
    return wrong != 0;
}
