// Any number of host threads may use the device: each gets its own results, nothing is mixed up and nothing deadlocks.
//
// The first test races the very first use, so that several threads find no context at once. A GPU stage inside a CPU
// `parallel` loop is the schedule that deadlocks a runtime which runs user tasks inside a copy; the time limit of CTest
// is what notices.
//
// Stock on lavapipe: passes for sizes that are multiples of 64, fails here because the sizes are not.

#include "support.h"

#include <atomic>
#include <functional>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

constexpr int kThreads = 8;

// A meeting point: nobody goes on before all have come.
class Barrier {
public:
    explicit Barrier(int count) : missing(count) {}
    void meet() {
        missing--;
        while (missing > 0) std::this_thread::yield();
    }

private:
    std::atomic<int> missing;
};

Callable compile_step() {
    Var x("x"), xi("xi");
    ImageParam input(UInt(32), 1, "input");
    Param<uint32_t> seed("seed");
    Func f("step");
    f(x) = scramble(input(x) + seed);
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    return f.compile_to_callable({input, seed}, gpu_target());
}

using Words = Runtime::Buffer<uint32_t, 1>;

// One thread's work: rounds of upload, launch, download with sizes and seeds of its own. Returns what went wrong.
std::string work(Callable &step, int thread, int rounds, bool churn) {
    std::mt19937 random(thread);
    for (int round = 0; round < rounds; round++) {
        const int n = 1 + random() % 3000;
        const uint32_t seed = random();
        Words input(n), output(n);
        fill(input, [&](const int *p) { return p[0] * 3 + thread; });
        if (step(input, seed, output) != 0) return "a launch failed";
        if (churn) {
            input.device_free();
            Words other(nullptr, 1 + random() % 5000);
            if (other.device_malloc(vulkan_interface()) != 0) return "an allocation failed";
        }
        if (output.copy_to_host() != 0) return "a copy failed";
        const auto ok = matches(output, [&](const int *p) { return scramble((uint32_t)(p[0] * 3 + thread) + seed); });
        if (!ok) return "thread " + std::to_string(thread) + ", round " + std::to_string(round) + ": " + ok.message();
    }
    return "";
}

// Must stay the first test of this file: it is the one that creates the context. HV_FULL=1: 200 rounds each.
TEST(GpuThreads, FirstUseIsRaced) {
    Callable step = compile_step();
    auto *sync = runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");
    auto *trim = runtime_call<int(void *)>("halide_vulkan_release_unused_device_allocations");
    const halide_device_interface_t *interface = vulkan_interface();
    const int rounds = std::getenv("HV_FULL") ? 200 : 40;
    Barrier barrier(kThreads + 2);
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    const auto beside = [&](const std::function<int()> &call) {
        barrier.meet();
        while (!stop) {
            failures += call() != 0;
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
    };
    std::thread syncing([&] { beside([&] { return sync(nullptr, interface); }); });
    std::thread trimming([&] { beside([&] { return trim(nullptr); }); });
    std::vector<std::string> wrong(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
        threads.emplace_back([&, i] {
            barrier.meet();
            wrong[i] = work(step, i, rounds, i % 2 == 1);
        });
    }
    for (std::thread &thread : threads) thread.join();
    stop = true;
    syncing.join();
    trimming.join();
    for (const std::string &text : wrong) EXPECT_EQ(text, "");
    EXPECT_EQ(failures, 0);
}

TEST(GpuThreads, SyncAndTrimBesideLaunches) {
    Callable step = compile_step();
    auto *sync = runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");
    auto *trim = runtime_call<int(void *)>("halide_vulkan_release_unused_device_allocations");
    const halide_device_interface_t *interface = vulkan_interface();
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    std::thread syncing([&] {
        while (!stop) failures += sync(nullptr, interface) != 0;
    });
    std::thread trimming([&] {
        while (!stop) {
            failures += trim(nullptr) != 0;
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
    });
    std::vector<std::string> wrong(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back([&, i] { wrong[i] = work(step, i, 60, true); });
    for (std::thread &thread : threads) thread.join();
    stop = true;
    syncing.join();
    trimming.join();
    for (const std::string &text : wrong) EXPECT_EQ(text, "");
    EXPECT_EQ(failures, 0);
}

// All threads read one input whose upload they race, as in a Halide pipeline shared by many callers.
TEST(GpuThreads, SharedInput) {
    Callable step = compile_step();
    for (int round = 0; round < 20; round++) {
        const int n = 2000 + round;
        Words input(n);
        fill(input, [&](const int *p) { return p[0] + round; });
        std::vector<Words> outputs;
        for (int i = 0; i < 4; i++) outputs.emplace_back(n);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&, i] {
                if (step(input, (uint32_t)i, outputs[i]) == 0) outputs[i].copy_to_host();
            });
        }
        for (std::thread &thread : threads) thread.join();
        for (uint32_t i = 0; i < 4; i++) {
            ASSERT_TRUE(matches(outputs[i], [&](const int *p) { return scramble((uint32_t)(p[0] + round) + i); }));
        }
    }
}

// The GPU stage is computed inside a parallel CPU loop: mallocs, launches and copies down come from pool threads, and
// the copies have every size from bytes to megabytes.
TEST(GpuThreads, GpuStageInsideParallelLoop) {
    Internal::JITSharedRuntime::set_num_threads(4);
    Var x("x"), y("y"), xi("xi");
    Param<int> salt("salt");
    Func inner("inner"), outer("outer");
    inner(x, y) = cast<uint32_t>(x * 5 + y * 7 + salt);
    outer(x, y) = inner(x, y) + 1;
    inner.compute_at(outer, y).gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    outer.parallel(y);
    Callable pipeline = outer.compile_to_callable({salt}, gpu_target());
    for (int width : {1, 7, 100, 1000, 4097, 30000, 262144, 1000001}) {
        const int rows = width > 100000 ? 8 : 32;
        Runtime::Buffer<uint32_t, 2> output(width, rows);
        ASSERT_OK(pipeline(width, output));
        ASSERT_TRUE(matches(output, [&](const int *p) { return (uint32_t)(p[0] * 5 + p[1] * 7 + width + 1); }));
    }
    Internal::JITSharedRuntime::set_num_threads(0);
}

// The same with an upload in the loop: the CPU produces what the GPU stage reads.
TEST(GpuThreads, UploadsInsideParallelLoop) {
    Internal::JITSharedRuntime::set_num_threads(4);
    Var x("x"), y("y"), xi("xi");
    Func first("first"), inner("inner"), outer("outer");
    first(x, y) = cast<uint16_t>(x * 3 + y);
    inner(x, y) = first(x, y) + first(x + 1, y);
    outer(x, y) = inner(x, y) * 2;
    first.compute_at(outer, y);
    inner.compute_at(outer, y).gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    outer.parallel(y);
    Callable pipeline = outer.compile_to_callable({}, gpu_target());
    for (int width : {1, 31, 999, 5000, 70001, 700001}) {
        Runtime::Buffer<uint16_t, 2> output(width, 12);
        ASSERT_OK(pipeline(output));
        ASSERT_TRUE(matches(output, [&](const int *p) { return (uint16_t)((p[0] * 6 + 3 + p[1] * 2) * 2); }));
    }
    Internal::JITSharedRuntime::set_num_threads(0);
}

}  // namespace
