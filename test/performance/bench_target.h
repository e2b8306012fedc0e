// bench_target.h: which Halide target a performance program runs on.
//
// HL_JIT_TARGET, else HL_TARGET, else Vulkan with what Halide's own tests ask for. A target without a GPU is refused:
// a figure measured on the CPU by mistake would look splendid.

#ifndef HALIDE_VULKAN_BENCH_TARGET_H
#define HALIDE_VULKAN_BENCH_TARGET_H

#include <Halide.h>
#include <cstdio>
#include <cstdlib>

namespace bench {

inline Halide::Target target_from_environment() {
    const char *text = getenv("HL_JIT_TARGET");
    if (!text || !*text) text = getenv("HL_TARGET");
    if (!text || !*text) text = "host-vulkan-vk_int8-vk_int16-vk_int64-vk_v13";
    Halide::Target target(text);
    if (!target.has_gpu_feature()) {
        fprintf(stderr, "target %s has no GPU: set HL_JIT_TARGET to host-vulkan or host-cuda\n", text);
        exit(2);
    }
    return target;
}

}  // namespace bench

#endif
