// More groups than the device allows in one dispatch are split, in x, y and z, and every group still runs exactly once.
//
// The limit is 65,535 in each direction on lavapipe and, for y and z, on every NVIDIA device. Halide kernels read their
// group number as it is, so a split launch has to add a base. The kernels here use one thread per group and little
// data. The validation run checks each dispatch against the limit; the entry gpu_group_limits.tiny has a device that
// allows 1,024 groups and counts the dispatches.
//
// Stock: right results on lavapipe by luck; the validation layer reports VUID-vkCmdDispatch-groupCountX-00386.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

class GpuGroupLimits : public ::testing::Test {
protected:
    Var x{"x"}, y{"y"}, z{"z"}, xi{"xi"}, yi{"yi"};

    // The limit that the counting layer reports instead of the device's; 0: the device's own.
    static int limit() {
        const char *limits = std::getenv("HV_TEST_LIMITS");
        int value = 0;
        if (limits) std::sscanf(limits, "maxComputeWorkGroupCount=%d", &value);
        return value;
    }
};

TEST_F(GpuGroupLimits, X) {
    Func f("f");
    f(x) = cast<uint8_t>(x * 7 + (x >> 8));
    f.gpu_tile(x, xi, 1);
    Callable kernel = f.compile_to_callable({}, gpu_target());
    for (int n : {65534, 65535, 65536, 65537, 70016, 131070, 131071, 300001}) {
        Runtime::Buffer<uint8_t, 1> out(n);
        if (limit()) hv_layer_reset();
        ASSERT_OK(kernel(out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [](const int *p) { return p[0] * 7 + (p[0] >> 8); })) << "n = " << n;
        if (limit()) {
            EXPECT_GE(hv_layer_count_prefix("vkCmdDispatch"), (uint64_t)(n + limit() - 1) / limit());
        }
    }
}

TEST_F(GpuGroupLimits, Y) {
    Func f("f");
    f(x, y) = cast<uint8_t>(x + y * 3 + (y >> 8));
    f.gpu_blocks(x, y);
    Callable kernel = f.compile_to_callable({}, gpu_target());
    for (int n : {65535, 65536, 70001}) {
        Runtime::Buffer<uint8_t, 2> out(2, n);
        ASSERT_OK(kernel(out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [](const int *p) { return p[0] + p[1] * 3 + (p[1] >> 8); })) << "n = " << n;
    }
}

TEST_F(GpuGroupLimits, Z) {
    Func f("f");
    f(x, y, z) = cast<uint8_t>(x + y * 2 + z * 5 + (z >> 8));
    f.gpu_blocks(x, y, z);
    Callable kernel = f.compile_to_callable({}, gpu_target());
    for (int n : {65535, 65536, 70001}) {
        Runtime::Buffer<uint8_t, 3> out(1, 2, n);
        ASSERT_OK(kernel(out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [](const int *p) { return p[0] + p[1] * 2 + p[2] * 5 + (p[2] >> 8); })) << "n = " << n;
    }
}

// Each group adds one to its own element: a group that ran twice would show.
TEST_F(GpuGroupLimits, EachGroupRunsOnce) {
    ImageParam input(Int(32), 1, "input");
    Func f("f");
    f(x) = input(x) + 1;
    f.gpu_tile(x, xi, 1);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    const int n = 140003;
    Runtime::Buffer<int, 1> data(n);
    fill(data, [](const int *p) { return p[0]; });
    for (int i = 0; i < 5; i++) ASSERT_OK(kernel(data, data));
    data.copy_to_host();
    EXPECT_TRUE(matches(data, [](const int *p) { return p[0] + 5; }));
}

// Over the limit with a workgroup of several threads, with scalars, a crop and a dynamic size at once.
TEST_F(GpuGroupLimits, WithEverythingElse) {
    Param<int> size("size"), salt("salt");
    Func f("f");
    f(x) = x * 5 + salt;
    f.gpu_tile(x, xi, size, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({size, salt}, gpu_target());
    for (int threads : {1, 2, 3}) {
        Runtime::Buffer<int, 1> base(66000 * threads + 9);
        fill(base, [](const int *) { return -1; });
        ASSERT_OK(base.copy_to_device(vulkan_interface()));
        {
            Runtime::Buffer<int, 1> crop = base.cropped(0, 3, 66000 * threads + 1);
            ASSERT_OK(kernel(threads, threads, crop));
        }
        base.set_device_dirty();
        base.copy_to_host();
        const int end = 3 + 66000 * threads + 1;
        ASSERT_TRUE(matches(base, [&](const int *p) { return p[0] < 3 || p[0] >= end ? -1 : p[0] * 5 + threads; }));
    }
}

}  // namespace
