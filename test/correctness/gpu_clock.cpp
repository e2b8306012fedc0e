// On a machine where a look at the clock is dear, launches and waits do without it.
//
// This program has a clock_gettime of its own, which everybody in the process calls: it counts the calls of the main
// thread, and can be made as slow as that of a virtual machine without a usable counter.

#include "support.h"

#include <dlfcn.h>
#include <time.h>

using namespace Halide;
using namespace vulkan_test;

namespace {

std::atomic<bool> slow{false};
thread_local uint64_t looks = 0;

int64_t ns_of(const timespec &t) { return t.tv_sec * (int64_t)1000000000 + t.tv_nsec; }

}  // namespace

extern "C" int clock_gettime(clockid_t which, timespec *out) noexcept {
    using Clock = int (*)(clockid_t, timespec *);
    static const Clock real = (Clock)dlsym(RTLD_NEXT, "clock_gettime");
    looks++;
    const int result = real(which, out);
    if (!slow) return result;
    timespec begin = {}, now = {};
    real(CLOCK_MONOTONIC, &begin);
    do {
        real(CLOCK_MONOTONIC, &now);
    } while (ns_of(now) - ns_of(begin) < 2200);
    return result;
}

namespace {

class GpuClock : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{Int(32), 1, "input"};
    Param<int> salt{"salt"};
    Runtime::Buffer<int32_t, 1> in{64}, out{64};

    // Looks at the clock in `count` launches that are waited for, by this thread.
    uint64_t looks_of(Callable &kernel, int count) {
        fill(in, [](const int *p) { return p[0]; });
        EXPECT_EQ(kernel(in, 0, out), 0);
        EXPECT_EQ(out.device_sync(), 0);
        const uint64_t before = looks;
        for (int i = 1; i <= count; i++) {
            EXPECT_EQ(kernel(in, i, out), 0);
            EXPECT_EQ(out.device_sync(), 0);
        }
        const uint64_t after = looks;
        EXPECT_EQ(out.copy_to_host(), 0);
        EXPECT_TRUE(matches(out, [&](const int *p) { return p[0] * 3 + count; }));
        in.device_free();
        out.device_free();
        vulkan_interface()->device_release(nullptr, vulkan_interface());
        return after - before;
    }
};

TEST_F(GpuClock, ADearOneIsNotAsked) {
    Func f("f");
    f(x) = input(x) * 3 + salt;
    f.gpu_tile(x, xi, 32);
    Callable kernel = f.compile_to_callable({input, salt}, gpu_target());
    constexpr int kCount = 200;
    const uint64_t cheap = looks_of(kernel, kCount);
    slow = true;
    const uint64_t dear = looks_of(kernel, kCount);
    slow = false;
    printf("looks per launch and wait: %.2f at a cheap clock, %.2f at a dear one\n", (double)cheap / kCount,
           (double)dear / kCount);
    EXPECT_GE(cheap, dear + 3 * kCount) << "the driver's own looks are in both";
    EXPECT_GE(looks_of(kernel, kCount), dear + 3 * kCount) << "measured anew for each device";
}

}  // namespace
