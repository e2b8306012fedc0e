// HL_VK_LOADER_LIB names the Vulkan library. A path that leads nowhere, or to a file that is no Vulkan library, is an
// error that names the variable, the file and the reason; a path that is right is used.
//
// Each test belongs to one CTest entry that sets the variable (see CMakeLists.txt): it is read once.

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "HalideRuntimeVulkan.h"
#include "double_and_add.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

using Halide::Runtime::Buffer;

namespace {

std::vector<std::string> errors;
void on_error(void *, const char *message) { errors.emplace_back(message); }

TEST(GpuAotLoaderPath, Bad) {
    halide_set_error_handler(on_error);
    Buffer<int32_t, 1> in(100), out(100);
    in.fill(4);
    for (int time = 0; time < 2; time++) {
        errors.clear();
        in.set_host_dirty();
        EXPECT_LT(double_and_add(nullptr, in, 1, out), 0);
        ASSERT_EQ(errors.size(), 1u);
        EXPECT_NE(errors[0].find("HL_VK_LOADER_LIB names '" + std::string(getenv("HL_VK_LOADER_LIB")) + "': "),
                  std::string::npos)
            << errors[0];
        EXPECT_NE(errors[0].find(getenv("HV_REASON")), std::string::npos) << errors[0];
    }
}

TEST(GpuAotLoaderPath, Good) {
    halide_set_error_handler(on_error);
    Buffer<int32_t, 1> in(100), out(100);
    in.fill(4);
    in.set_host_dirty();
    ASSERT_EQ(double_and_add(nullptr, in, 1, out), 0) << (errors.empty() ? "" : errors[0]);
    ASSERT_EQ(out.copy_to_host(), 0);
    for (int x = 0; x < 100; x++) ASSERT_EQ(out(x), 9);
}

}  // namespace
