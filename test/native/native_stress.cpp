// Many threads on one device, under a sanitizer and with a real Vulkan driver underneath.
//
// The runtime is compiled natively with ASan and UBSan, or with TSan, and so is the host code of the pipelines. What is
// tested is less that results are right (they are compared, too) than that the sanitizer stays silent: first use raced,
// own and shared buffers, crops, copies and frees with work in flight, and beside them threads that trim, sync, ask for
// statistics and release the device in a loop.
//
// NativePlanted holds faults that must be reported; they are no part of an ordinary run.
//
// HV_STRESS_SECONDS says how long each test goes on (default 2); HV_STRESS_SEED varies what it does (default 1).

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "HalideRuntimeVulkan.h"
#include "blur.h"
#include "double_and_add.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int halide_vulkan_release_unused_device_allocations(void *user_context);
int halide_vulkan_get_stats(void *user_context, void *out, size_t bytes);
}

using Halide::Runtime::Buffer;

namespace {

constexpr int kThreads = 8;

double number_in(const char *variable, double otherwise) {
    const char *text = std::getenv(variable);
    return text ? std::atof(text) : otherwise;
}

// A user context: each thread has one, so that no message crosses threads.
struct Caller {
    std::string message;
};
void on_error(void *caller, const char *message) {
    if (caller) ((Caller *)caller)->message = message;
}

class Deadline {
public:
    bool passed() const { return std::chrono::steady_clock::now() >= end; }

private:
    const std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds((int)(1000 * number_in("HV_STRESS_SECONDS", 2)));
};

const halide_device_interface_t *device() { return halide_vulkan_device_interface(); }

std::atomic<int> rounds{0};  // that went through

// One thread's work. Where `may_fail`, a call may return an error (the device was released under it), and the round
// ends there; a result that no call complained about must be right all the same.
class Worker {
public:
    Worker(int seed, bool may_fail)
        : random((uint32_t)(seed + 1000 * (int)number_in("HV_STRESS_SEED", 1))), may_fail(may_fail) {}

    std::string wrong;  // what was, if anything

    void one_round() {
        switch (random() % 5) {
        case 0: return chain(1 + random() % 300);
        case 1: return chain(1 + random() % 30000);
        case 2: return blurred(1 + random() % 100, 1 + random() % 40);
        case 3: return copies(1 + random() % 5000);
        default: return crops(100 + random() % 4000);
        }
    }

    // Reads an input that other threads read as well; whoever is first uploads it.
    void shared_input(Buffer<int32_t, 1> &in) {
        Buffer<int32_t, 1> out(in.dim(0).extent());
        const int salt = (int)(random() % 1000);
        if (!good(double_and_add(&caller, in, salt, out)) || !good(halide_copy_to_host(&caller, out))) return;
        expect(out, [&](int x) { return x * 10 + salt; });
    }

    bool good(int code) {
        if (code == 0) return true;
        if (!may_fail) wrong = "code " + std::to_string(code) + ": " + caller.message;
        return false;
    }

    Caller caller;

private:
    std::mt19937 random;
    const bool may_fail;

    void expect(const Buffer<int32_t, 1> &buffer, const std::function<int(int)> &value) {
        for (int x = buffer.dim(0).min(); x <= buffer.dim(0).max(); x++) {
            if (buffer(x) != value(x)) {
                wrong = "element " + std::to_string(x) + " of " + std::to_string(buffer.dim(0).extent()) + " is " +
                        std::to_string(buffer(x)) + " instead of " + std::to_string(value(x));
                return;
            }
        }
        rounds++;
    }

    static Buffer<int32_t, 1> ramp(int n) {
        Buffer<int32_t, 1> in(n);
        for (int x = 0; x < n; x++) in(x) = x * 5;
        in.set_host_dirty();
        return in;
    }

    // Launches that feed one another, the intermediate freed while it is in use.
    void chain(int n) {
        Buffer<int32_t, 1> in = ramp(n), out(n);
        {
            Buffer<int32_t, 1> between(nullptr, n);  // without an allocation, a call would only ask for its bounds
            if (!good(halide_device_malloc(&caller, between, device()))) return;
            if (!good(double_and_add(&caller, in, 3, between))) return;
            if (!good(double_and_add(&caller, between, 4, out))) return;
        }
        if (random() % 2) halide_device_free(&caller, in);
        if (!good(halide_copy_to_host(&caller, out))) return;
        expect(out, [](int x) { return (x * 10 + 3) * 2 + 4; });
    }

    void blurred(int width, int height) {
        Buffer<uint8_t, 2> in(width + 2, height + 2), out(width, height);
        for (int y = 0; y < height + 2; y++) {
            for (int x = 0; x < width + 2; x++) in(x, y) = (uint8_t)(x * 3 + y * 5);
        }
        in.set_host_dirty();
        if (!good(blur(&caller, in, out)) || !good(halide_copy_to_host(&caller, out))) return;
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                int sum = 0;
                for (int dy = 0; dy < 3; dy++) {
                    for (int dx = 0; dx < 3; dx++) sum += in(x + dx, y + dy);
                }
                if (out(x, y) != sum / 9) wrong = "blur at " + std::to_string(x) + ", " + std::to_string(y);
            }
        }
        rounds++;
    }

    // Host to device, device to device, device to host, by way of halide_buffer_copy.
    void copies(int n) {
        Buffer<int32_t, 1> in = ramp(n), there(nullptr, n), also_there(nullptr, n), out(n);
        if (!good(halide_device_malloc(&caller, there, device()))) return;
        if (!good(halide_device_malloc(&caller, also_there, device()))) return;
        if (!good(halide_buffer_copy(&caller, in, device(), there))) return;
        if (!good(halide_buffer_copy(&caller, there, device(), also_there))) return;
        halide_device_free(&caller, there);
        also_there.set_device_dirty();
        if (!good(halide_buffer_copy(&caller, also_there, nullptr, out))) return;
        expect(out, [](int x) { return x * 5; });
    }

    // A launch into a crop of a buffer, then the whole buffer down.
    void crops(int n) {
        Buffer<int32_t, 1> in = ramp(n), whole(n);
        if (!good(double_and_add(&caller, in, 1, whole))) return;
        const int begin = 1 + random() % (n / 2), count = 1 + random() % (n / 2 - 1);
        halide_dimension_t shape[1] = {{begin, count, 1, 0}};
        Buffer<int32_t, 1> part(whole.data() + begin, 1, shape);
        if (!good(device()->device_crop(&caller, whole, part))) return;
        const bool launched = good(double_and_add(&caller, in, 2, part));
        part.set_device_dirty(false);
        device()->device_release_crop(&caller, part);
        if (!launched || !good(halide_copy_to_host(&caller, whole))) return;
        expect(whole, [&](int x) { return x * 10 + (x >= begin && x < begin + count ? 2 : 1); });
    }
};

// Runs body(i) on threads of their own and waits for all; they begin together.
void on_threads(int count, const std::function<void(int)> &body) {
    std::atomic<int> missing{count};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) {
        threads.emplace_back([&, i] {
            missing--;
            while (missing > 0) std::this_thread::yield();
            body(i);
        });
    }
    for (std::thread &thread : threads) thread.join();
}

// Eight workers, and beside them one thread for each of `besides`, called again and again.
void work(bool may_fail, const std::vector<std::function<void(Caller &)>> &besides) {
    const Deadline deadline;
    const int before = rounds;
    std::atomic<bool> stop{false};
    std::vector<Worker> workers;
    for (int i = 0; i < kThreads; i++) workers.emplace_back(i, may_fail);
    on_threads(kThreads + (int)besides.size(), [&](int i) {
        Caller caller;
        // On a machine that is busy otherwise the first round may take longer.
        while (!stop && (!deadline.passed() || rounds == before)) {
            if (i < kThreads) {
                workers[i].one_round();
                if (!workers[i].wrong.empty()) stop = true;
            } else {
                besides[i - kThreads](caller);
            }
        }
    });
    for (const Worker &worker : workers) EXPECT_EQ(worker.wrong, "");
    std::printf("%d rounds\n", rounds - before);
}

void pause_us(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

void trim(Caller &caller) {
    halide_vulkan_release_unused_device_allocations(&caller);
    pause_us(300);
}
void sync(Caller &caller) {
    halide_device_sync_global(&caller, device());
    pause_us(100);
}
void ask(Caller &caller) {
    uint64_t stats[64];
    halide_vulkan_get_stats(&caller, stats, sizeof(stats));
    int major = 0, minor = 0;
    device()->compute_capability(&caller, &major, &minor);
    pause_us(500);
}
std::atomic<int> releases{0};
// A while after a round was finished since the last one: a round that meets a release fails, so on a busy machine none
// would ever be finished.
void release(Caller &caller) {
    const int before = rounds;
    for (int i = 0; i < 100 && (i < 10 || rounds == before); i++) pause_us(10000);
    halide_device_release(&caller, device());
    releases++;
}

class NativeStress : public ::testing::Test {
protected:
    static void SetUpTestSuite() { halide_set_error_handler(on_error); }
};

// Must stay the first test: it is the one that makes the context.
TEST_F(NativeStress, FirstUseIsRaced) {
    for (int round = 0; round < 3; round++) {
        std::vector<Worker> workers;
        for (int i = 0; i < kThreads; i++) workers.emplace_back(i + round * kThreads, false);
        on_threads(kThreads, [&](int i) {
            Caller caller;
            if (i == 0) sync(caller);
            if (i == 1) ask(caller);
            if (i == 2) trim(caller);
            workers[i].one_round();
        });
        for (const Worker &worker : workers) EXPECT_EQ(worker.wrong, "");
        Caller caller;
        EXPECT_EQ((halide_device_release(&caller, device()), caller.message), "");
    }
}

TEST_F(NativeStress, OwnBuffersWithTrimAndSyncBeside) { work(false, {trim, sync, ask}); }

TEST_F(NativeStress, SharedInput) {
    const Deadline deadline;
    while (!deadline.passed()) {
        const int n = 3000;
        Buffer<int32_t, 1> in(n);
        for (int x = 0; x < n; x++) in(x) = x * 5;
        in.set_host_dirty();
        std::vector<Worker> workers;
        for (int i = 0; i < kThreads; i++) workers.emplace_back(i, false);
        on_threads(kThreads, [&](int i) { workers[i].shared_input(in); });
        for (const Worker &worker : workers) ASSERT_EQ(worker.wrong, "");
    }
}

// Disjoint parts of one buffer, each written by a thread of its own.
TEST_F(NativeStress, SharedOutput) {
    const Deadline deadline;
    while (!deadline.passed()) {
        const int each = 333, n = each * kThreads;
        Buffer<int32_t, 1> out(nullptr, n), down(n);
        Caller caller;
        ASSERT_EQ(halide_device_malloc(&caller, out, device()), 0) << caller.message;
        std::vector<Worker> workers;
        for (int i = 0; i < kThreads; i++) workers.emplace_back(i, false);
        on_threads(kThreads, [&](int i) {
            Worker &w = workers[i];
            Buffer<int32_t, 1> in(each);
            in.set_min(i * each);
            for (int x = i * each; x < (i + 1) * each; x++) in(x) = x;
            in.set_host_dirty();
            halide_dimension_t shape[1] = {{i * each, each, 1, 0}};
            Buffer<int32_t, 1> part(nullptr, 1, shape);
            if (!w.good(device()->device_crop(&w.caller, out, part))) return;
            w.good(double_and_add(&w.caller, in, i, part));
            part.set_device_dirty(false);
            device()->device_release_crop(&w.caller, part);
        });
        for (const Worker &worker : workers) ASSERT_EQ(worker.wrong, "");
        out.set_device_dirty();
        ASSERT_EQ(halide_buffer_copy(&caller, out, nullptr, down), 0) << caller.message;
        for (int x = 0; x < n; x++) ASSERT_EQ(down(x), x * 2 + x / each) << x;
    }
}

// Whoever is inside when the device is released gets an error or a right result; whoever comes after gets a new device.
TEST_F(NativeStress, ReleaseAndTrimBeside) {
    work(true, {release, trim, sync, ask});
    EXPECT_GT(releases, 0);
    std::printf("%d releases\n", releases.load());
    Caller caller;
    halide_device_release(&caller, device());
    Worker after(7, false);
    after.one_round();
    EXPECT_EQ(after.wrong, "");
}

// Faults planted in what the runtime is given, one for each sanitizer. Each must be reported inside the runtime.
class NativePlanted : public NativeStress {};

TEST_F(NativePlanted, UseAfterFree) {
    Caller caller;
    Buffer<int32_t, 1> buffer(nullptr, 1000);
    buffer.raw_buffer()->host = (uint8_t *)std::malloc(4000);
    buffer.set_host_dirty();
    std::free(buffer.raw_buffer()->host);
    halide_copy_to_device(&caller, buffer, device());
    FAIL() << "nothing reported that the runtime read memory after it was freed";
}

TEST_F(NativePlanted, Undefined) {
    // A buffer at an odd address.
    alignas(8) char memory[sizeof(halide_buffer_t) + 1] = {};
    halide_buffer_t *buffer = (halide_buffer_t *)(memory + 1);
    halide_vulkan_device_interface()->device_malloc(nullptr, buffer, device());
    FAIL() << "nothing reported that the runtime read through a misaligned pointer";
}

}  // namespace
