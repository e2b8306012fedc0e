// A program that names libHalideVulkan.so before libHalide when it is linked runs on our runtime without any preload.

#include <Halide.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <stdint.h>

using namespace Halide;

TEST(Package, LinkedBeforeHalide) {
    Var x, xi;
    Func f;
    f(x) = x * 3;
    f.gpu_tile(x, xi, 16);
    Buffer<int> result = f.realize({64}, get_host_target().with_feature(Target::Vulkan));
    result.copy_to_host();
    for (int i = 0; i < 64; i++) ASSERT_EQ(result(i), i * 3);

    const auto *version = (const uint32_t *)dlsym(RTLD_DEFAULT, "halide_vulkan_registry");
    ASSERT_NE(version, nullptr) << "the library is not in the process";
    EXPECT_NE(*version, 0u) << "the runtime that ran did not enter itself: it was the stock one";
}
