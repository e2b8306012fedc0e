// What waiting costs: a thread that waits for a long kernel sleeps, and with one core nobody spins.
//
// A blocking wait wakes late, so short waits are spun through; but a wait that spins for as long as a kernel runs burns
// a core, eight threads burn eight, and with one core it keeps the device's own software from running. Measured is the
// processor time of the waiting threads alone, as a part of the time that passed; counted are the looks at the driver.
//
// The entry gpu_waits.as_gpu pretends that the device is a GPU, since nobody spins on a CPU device. HV_FULL=1 waits for
// 2 s instead of 0.3, and 10,000 times on one core instead of 300.
//
// Stock: passes (it always blocks).

#include "support.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include <sched.h>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

double seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

class GpuWaits : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{UInt(32), 1, "input"};
    const bool full = std::getenv("HV_FULL") != nullptr;
    int (*sync)(void *, const halide_device_interface_t *) =
        runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");

    Callable compile(int rounds) {
        Func f("f"), walk("walk");
        RDom r(0, rounds);
        walk(x) = input(x);
        walk(x) = walk(x) * Expr(1664525u) + cast<uint32_t>(r);
        f(x) = walk(x);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        walk.compute_at(f, xi);
        return f.compile_to_callable({input}, gpu_target());
    }
    // Launches, one after the other on the device, that take about as long as asked for.
    int launches_for(Callable &kernel, Words &a, double wanted) {
        for (int n = 1;; n *= 2) {
            const double begin = seconds(CLOCK_MONOTONIC);
            for (int i = 0; i < n; i++) EXPECT_EQ(kernel(a, a), 0);
            EXPECT_EQ(sync(nullptr, vulkan_interface()), 0);
            const double took = seconds(CLOCK_MONOTONIC) - begin;
            if (took > wanted / 8 || n >= 1 << 14) return std::max(1, (int)(n * wanted / took));
        }
    }
};

TEST_F(GpuWaits, LongWaitsSleep) {
    Callable kernel = compile(20000);
    Words a(20000);
    a.fill(7);
    a.set_host_dirty();
    ASSERT_OK(kernel(a, a));
    const int launches = launches_for(kernel, a, full ? 2 : 0.3);
    for (const int threads : {1, 8}) {
        for (int i = 0; i < launches; i++) ASSERT_OK(kernel(a, a));
        std::vector<double> used(threads);
        std::vector<std::thread> waiting;
        const double begin = seconds(CLOCK_MONOTONIC);
        for (int i = 0; i < threads; i++) {
            waiting.emplace_back([&, i] {
                const double before = seconds(CLOCK_THREAD_CPUTIME_ID);
                EXPECT_EQ(sync(nullptr, vulkan_interface()), 0);
                used[i] = seconds(CLOCK_THREAD_CPUTIME_ID) - before;
            });
        }
        for (std::thread &thread : waiting) thread.join();
        const double waited = seconds(CLOCK_MONOTONIC) - begin;
        double sum = 0;
        for (double one : used) sum += one;
        printf("%d threads waited %.3f s and used %.4f s of processor time\n", threads, waited, sum);
        // Each may spin for 60 us first, and wakes up to return: 280 us of 8 threads on an H200.
        EXPECT_LT(sum, 0.05 * waited + 0.0002 * threads) << threads << " threads";
    }
}

TEST_F(GpuWaits, OneCoreNeverSpins) {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    }
    Callable kernel = compile(20);
    vulkan_interface()->device_release(nullptr, vulkan_interface());
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    Words a(64);
    a.fill(7);
    a.set_host_dirty();
    ASSERT_OK(kernel(a, a));
    ASSERT_OK(a.device_sync());
    const int rounds = full ? 10000 : 300;
    hv_layer_reset();
    for (int i = 0; i < rounds; i++) {
        ASSERT_OK(kernel(a, a));
        ASSERT_OK(a.device_sync());
    }
    const uint64_t looks = hv_layer_count("vkGetFenceStatus") + hv_layer_count("vkGetSemaphoreCounterValue");
    EXPECT_LE(looks, (uint64_t)rounds * 2) << "a look or two for each launch";
    ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
    ASSERT_OK(a.copy_to_host());
    uint32_t expected = 7;
    for (int i = 0; i <= rounds; i++) {
        for (uint32_t r = 0; r < 20; r++) expected = expected * 1664525u + r;
    }
    EXPECT_TRUE(matches(a, [&](const int *) { return expected; }));
}

}  // namespace
