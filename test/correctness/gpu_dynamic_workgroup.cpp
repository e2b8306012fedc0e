// Workgroup sizes that are known only when the pipeline runs, whichever of x, y and z is the unknown one.
//
// Halide's code generator decides by x alone: x unknown makes all three specialization constants; x known with y or z
// unknown leaves a local size of (x, 1, 1) in the kernel, although the launch is asked for (x, y, z). A runtime has to
// notice the difference. Alternating sizes go through several variants of one kernel, and a launch with the kernel's
// own default size must not run the variant of an earlier launch.
//
// Stock: OnlyYIsDynamic and OnlyZIsDynamic are silently wrong (measured: 128 of 2,048 elements right).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Plane = Runtime::Buffer<int, 2>;

class GpuDynamicWorkgroup : public ::testing::Test {
protected:
    Var x{"x"}, y{"y"}, z{"z"}, xo{"xo"}, yo{"yo"}, zo{"zo"}, xi{"xi"}, yi{"yi"}, zi{"zi"};
    Param<int> wx{"wx"}, wy{"wy"}, salt{"salt"};

    static void expect_plane(Callable &kernel, int size, int salt_value, int width = 64, int height = 32) {
        Plane out(width, height);
        out.fill(-1);
        ASSERT_OK(kernel(size, salt_value, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] + p[1] * 1000 + salt_value; }))
            << "workgroup size " << size;
    }
};

TEST_F(GpuDynamicWorkgroup, OnlyXIsDynamic) {
    Func f("f");
    f(x, y) = x + y * 1000 + salt;
    f.gpu_tile(x, y, xi, yi, wx, 4, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {1, 2, 3, 4, 7, 8, 16, 33, 64}) expect_plane(kernel, size, size);
}

TEST_F(GpuDynamicWorkgroup, OnlyYIsDynamic) {
    Func f("f");
    f(x, y) = x + y * 1000 + salt;
    f.gpu_tile(x, y, xi, yi, 16, wy, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wy, salt}, gpu_target());
    for (int size : {1, 2, 3, 4, 7, 8, 16, 1}) expect_plane(kernel, size, size);
}

TEST_F(GpuDynamicWorkgroup, OnlyZIsDynamic) {
    Func f("f");
    f(x, y, z) = x + y * 1000 + z * 100000 + salt;
    f.gpu_tile(x, y, z, xi, yi, zi, 8, 4, wx, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {1, 2, 3, 5, 8}) {
        Runtime::Buffer<int, 3> out(20, 10, 11);
        out.fill(-1);
        ASSERT_OK(kernel(size, size, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] + p[1] * 1000 + p[2] * 100000 + size; }))
            << "workgroup size " << size;
    }
}

TEST_F(GpuDynamicWorkgroup, YAndZAreDynamic) {
    Func f("f");
    f(x, y, z) = x + y * 1000 + z * 100000 + salt;
    f.gpu_tile(x, y, z, xi, yi, zi, 8, wx, wy, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wx, wy, salt}, gpu_target());
    for (int size : {1, 2, 3, 5}) {
        Runtime::Buffer<int, 3> out(20, 10, 11);
        out.fill(-1);
        ASSERT_OK(kernel(size, 6 - size, size, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] + p[1] * 1000 + p[2] * 100000 + size; }))
            << "workgroup size " << size;
    }
}

// Two sizes in turn with no sync, results checked at the end: no variant may be destroyed while it is in flight.
TEST_F(GpuDynamicWorkgroup, AlternatingSizes) {
    Func f("f");
    f(x, y) = x + y * 1000 + salt;
    f.gpu_tile(x, y, xi, yi, wx, 2, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int variants : {2, 13}) {
        std::vector<Plane> outs;
        for (int i = 0; i < 80; i++) {
            outs.emplace_back(50, 20);
            ASSERT_OK(kernel(1 + i % variants, i, outs.back()));
        }
        for (int i = 0; i < 80; i++) {
            outs[i].copy_to_host();
            ASSERT_TRUE(matches(outs[i], [&](const int *p) { return p[0] + p[1] * 1000 + i; })) << "launch " << i;
        }
    }
}

// One blob that holds a kernel with a fixed size and one with a dynamic size; both are launched, then only the fixed
// one again.
TEST_F(GpuDynamicWorkgroup, FixedBesideDynamic) {
    Func a("a"), b("b");
    a(x, y) = x + y * 1000;
    b(x, y) = a(x, y) + salt;
    a.compute_root().gpu_tile(x, y, xi, yi, wx, 4, TailStrategy::GuardWithIf);
    b.gpu_tile(x, y, xi, yi, 8, 8, TailStrategy::GuardWithIf);
    Callable kernel = b.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {5, 1, 8, 5, 1}) expect_plane(kernel, size, size * 3);
}

// One kernel, first specialized (size 16), then with the value that is its default (1), then specialized again.
TEST_F(GpuDynamicWorkgroup, DefaultSizeAfterSpecialized) {
    Func f("f");
    f(x, y) = x + y * 1000 + salt;
    f.gpu_tile(x, y, xi, yi, wx, 1, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {16, 1, 16, 1, 7, 1}) expect_plane(kernel, size, size);
}

// Shared memory whose size follows the workgroup.
TEST_F(GpuDynamicWorkgroup, SharedMemoryOfDynamicSize) {
    Func g("g"), f("f");
    g(x) = x * 3 + salt;
    f(x) = g(x - 1) + g(x) + g(x + 1);
    f.gpu_tile(x, xo, xi, wx, TailStrategy::GuardWithIf);
    g.compute_at(f, xo).gpu_threads(x);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {4, 32, 1, 8, 100, 4, 32}) {
        Runtime::Buffer<int, 1> out(1000);
        out.fill(-1);
        ASSERT_OK(kernel(size, size, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] * 9 + 3 * size; })) << "workgroup size " << size;
    }
}

// A fixed and a dynamic shared allocation in one kernel: the dynamic one gets what is left of the total.
TEST_F(GpuDynamicWorkgroup, FixedAndDynamicSharedMemory) {
    Func g("g"), h("h"), f("f");
    Var t("t");
    g(x) = x * 3 + salt;
    h(x) = cast<uint8_t>(x & 63);
    f(x) = g(x) + g(x + 1) + cast<int>(h(x & 31));
    f.gpu_tile(x, xo, xi, wx, TailStrategy::GuardWithIf);
    g.compute_at(f, xo).gpu_threads(x);
    h.compute_at(f, xo).bound_extent(x, 32).gpu_threads(x);
    Callable kernel = f.compile_to_callable({wx, salt}, gpu_target());
    for (int size : {32, 48, 64}) {
        Runtime::Buffer<int, 1> out(640);
        out.fill(-1);
        ASSERT_OK(kernel(size, size, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] * 6 + 3 + 2 * size + (p[0] & 31); }))
            << "workgroup size " << size;
    }
}

}  // namespace
