// A program with a pipeline and a runtime of ours that looks at the runtime's statistics.

#include "HalideBuffer.h"
#include "halide_vulkan_stats.h"
#include "package_aot.h"

#include <stdio.h>

int main() {
    Halide::Runtime::Buffer<int32_t, 2> input(61, 37), output(61, 37);
    input.fill(1);
    input.set_host_dirty();
    if (package_aot(input, output) || output.copy_to_host()) return 1;
    halide_vulkan_stats stats = {};
    if (halide_vulkan_get_stats(nullptr, &stats, sizeof(stats))) return 2;
    printf("version %d, submissions %s\n", (int)stats.version, stats.submissions > 0 ? "some" : "none");
    return 0;
}
