// Device memory may be freed while kernels that use it are still running or not even submitted.
//
// Halide frees an intermediate right after the last launch that names it, without a sync. The runtime may hand the same
// memory out again at once, in smaller pieces or joined with its neighbours, as long as the later work stays behind the
// earlier. Each round launches chains on temporaries, frees the temporaries under way, and allocates pieces that are
// smaller and larger than what was freed, so that regions split and join; at the end every result is checked.
//
// Stock waits after every launch, so in principle it passes; on lavapipe it fails for sizes that are no multiple of 64.

#include "support.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

// Slow enough to be running still when the host goes on: 60 dependent steps per element.
constexpr int kSteps = 60;

Expr steps(Expr value) {
    for (int i = 0; i < kSteps; i++) value = scramble(value);
    return value;
}
uint32_t steps(uint32_t value) {
    for (int i = 0; i < kSteps; i++) value = scramble(value);
    return value;
}

class GpuFreeWhileInFlight : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    Param<uint32_t> seed{"seed"};
    ImageParam input{UInt(32), 1, "input"};
    Callable produce = make_produce(), consume = make_consume();

    Callable make_produce() {
        Func f("produce");
        f(x) = steps(cast<uint32_t>(x) + seed);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({seed}, gpu_target());
    }
    Callable make_consume() {
        Func f("consume");
        f(x) = input(x) * 3 + seed;
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, seed}, gpu_target());
    }

    static Words device_only(int n) {
        Words buffer(nullptr, n);
        allocate_on_device(buffer);
        return buffer;
    }

    // A result that waits to be checked.
    struct Result {
        Words buffer;
        uint32_t seed;
    };
    static ::testing::AssertionResult right(Result &result) {
        result.buffer.copy_to_host();
        return matches(result.buffer,
                       [&](const int *p) { return steps((uint32_t)p[0] + result.seed) * 3 + result.seed; });
    }

    // temporary <- produce; result <- consume(temporary). The caller frees the temporary when it likes.
    Words launch(int n, uint32_t seed_value, std::vector<Result> &results) {
        Words temporary = device_only(n);
        EXPECT_EQ(produce(seed_value, temporary), 0);
        Result result{Words(n), seed_value};
        EXPECT_EQ(consume(temporary, seed_value, result.buffer), 0);
        results.push_back(result);
        return temporary;
    }
};

TEST_F(GpuFreeWhileInFlight, SmallerAndLargerAllocationsAfterwards) {
    std::mt19937 random(7);
    const int sizes[] = {1, 3, 17, 64, 100, 1000, 1024, 4096, 5000, 20000};
    for (int round = 0; round < 60; round++) {
        std::vector<Result> results;
        for (int k = 0; k < 6; k++) {
            const int n = sizes[random() % 10];
            launch(n, random(), results).device_free();
            // Four pieces of what was just freed, two of them freed again at once.
            for (int piece = 0; piece < 4; piece++) {
                Words part = launch(std::max(1, n / 4), random(), results);
                if (piece % 2) part.device_free();
            }
            // More than what was freed: neighbours must join, or other memory be found.
            launch(n * 2, random(), results).device_free();
            if (random() % 4 == 0) results.erase(results.begin() + random() % results.size());
        }
        for (Result &result : results) ASSERT_TRUE(right(result)) << "round " << round;
    }
}

TEST_F(GpuFreeWhileInFlight, FreedFromAnotherThread) {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<Words> to_free;
    bool done = false;
    std::thread reaper([&] {
        std::unique_lock<std::mutex> lock(mutex);
        while (true) {
            filled.wait(lock, [&] { return done || !to_free.empty(); });
            if (to_free.empty()) return;
            Words buffer = std::move(to_free.front());
            to_free.pop_front();
            lock.unlock();
            buffer.device_free();
            lock.lock();
        }
    });
    std::mt19937 random(11);
    for (int round = 0; round < 60; round++) {
        std::vector<Result> results;
        for (int k = 0; k < 16; k++) {
            Words temporary = launch(1 + random() % 6000, random(), results);
            std::lock_guard<std::mutex> lock(mutex);
            to_free.push_back(std::move(temporary));
            filled.notify_one();
        }
        for (Result &result : results) {
            const ::testing::AssertionResult ok = right(result);
            EXPECT_TRUE(ok) << "round " << round;
        }
        if (HasFailure()) break;
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        done = true;
        filled.notify_one();
    }
    reaper.join();
}

// A buffer is freed when the copy out of it is only recorded, by this thread or another, and the next kernel writes the
// memory it had: the copy still sees the old bytes, and memory stays flat. HV_FULL=1: 10,000 rounds.
TEST_F(GpuFreeWhileInFlight, CopiedOutThenFreed) {
    const halide_device_interface_t *interface = vulkan_interface();
    const uint32_t rounds = std::getenv("HV_FULL") ? 10000 : 400;
    const int n = 5000;
    for (const bool by_another : {false, true}) {
        Words b(n);
        uint64_t held = 0;
        for (uint32_t round = 0; round < rounds; round++) {
            Words a = device_only(n);
            ASSERT_OK(produce(round, a));
            ASSERT_OK(interface->buffer_copy(nullptr, a.raw_buffer(), interface, b.raw_buffer()));
            a.set_device_dirty(false);
            if (by_another)
                std::thread([&] { EXPECT_EQ(a.device_free(), 0); }).join();
            else
                ASSERT_OK(a.device_free());
            Words c = device_only(n);
            ASSERT_OK(produce(round + 1000000, c));
            ASSERT_OK(b.copy_to_host());
            ASSERT_TRUE(matches(b, [&](const int *p) { return steps((uint32_t)p[0] + round); })) << round;
            b.set_host_dirty(false);
            if (round == 50) held = hv_layer_allocated_bytes();
            ASSERT_TRUE(round <= 50 || hv_layer_allocated_bytes() == held) << round;
        }
    }
}

// The same, and the device is released right after the free: nothing is left behind, and the next use works.
TEST_F(GpuFreeWhileInFlight, CopiedOutThenFreedThenReleased) {
    const halide_device_interface_t *interface = vulkan_interface();
    for (uint32_t round = 0; round < 10; round++) {
        Words b(3000);
        {
            Words a = device_only(3000);
            ASSERT_OK(produce(round, a));
            ASSERT_OK(interface->buffer_copy(nullptr, a.raw_buffer(), interface, b.raw_buffer()));
            a.set_device_dirty(false);
            ASSERT_OK(a.device_free());
        }
        interface->device_release(nullptr, interface);
        EXPECT_EQ(hv_layer_left(), 0);
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        b.set_device_dirty(false);
        ASSERT_OK(b.device_free());
        std::vector<Result> results;
        launch(1000, round, results).device_free();
        ASSERT_TRUE(right(results[0]));
    }
}

// What Halide itself does: a pipeline with device-only intermediates, run again and again without a sync in between.
TEST_F(GpuFreeWhileInFlight, IntermediatesOfAPipeline) {
    Func a("a"), b("b"), c("c");
    a(x) = scramble(cast<uint32_t>(x) + seed);
    b(x) = a(x) ^ a(x + 37);
    c(x) = b(x) + b(x + 5);
    for (Func f : {a, b, c}) f.compute_root().gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    Callable pipeline = c.compile_to_callable({seed}, gpu_target());
    const auto expected = [](uint32_t i, uint32_t s) {
        const auto b_of = [&](uint32_t j) { return scramble(j + s) ^ scramble(j + 37 + s); };
        return b_of(i) + b_of(i + 5);
    };
    std::vector<Result> results;
    for (uint32_t i = 0; i < 300; i++) {
        Result result{Words(50 + (int)(i * 53 % 1900)), i * 7919};
        ASSERT_OK(pipeline(result.seed, result.buffer));
        results.push_back(result);
    }
    for (Result &result : results) {
        result.buffer.copy_to_host();
        ASSERT_TRUE(matches(result.buffer, [&](const int *p) { return expected(p[0], result.seed); }));
    }
}

}  // namespace
