// A program that compiles a pipeline at run time, as a Halide user's would be. It says on whose runtime it ran.

#include "Halide.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

using namespace Halide;

int main() {
    Var x, xi;
    Func f;
    f(x) = x * 3;
    f.gpu_tile(x, xi, 16);
    Buffer<int> result = f.realize({64}, Target("host-vulkan"));
    result.copy_to_host();
    int wrong = 0;
    for (int i = 0; i < 64; i++) wrong += result(i) != i * 3;
    const auto *version = (const uint32_t *)dlsym(RTLD_DEFAULT, "halide_vulkan_registry");
    printf("wrong %d\nruntime %s\n", wrong, version && *version ? "ours" : "stock");
    return wrong != 0;
}
