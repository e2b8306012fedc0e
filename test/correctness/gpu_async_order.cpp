// Work is submitted without waiting, and yet everything happens in the order of the calls.
//
// Chains of dependent kernels, host memory that is refilled right after an upload, buffers that are freed while a copy
// out of them is only recorded, and long runs of launches with no sync: whatever a runtime batches, the results must be
// those of doing one thing after the other.
//
// Stock waits after every operation and so cannot fail by order; on lavapipe it fails where a size is no multiple
// of 64.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

class GpuAsyncOrder : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{UInt(32), 1, "input"}, other{UInt(32), 1, "other"};
    Param<uint32_t> seed{"seed"};

    Callable step() {
        Func f("step");
        f(x) = scramble(input(x) + cast<uint32_t>(x) * seed);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, seed}, gpu_target());
    }
    Callable sum() {
        Func f("sum");
        f(x) = input(x) + other(x);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, other}, gpu_target());
    }
    Callable constant() {
        Func f("constant");
        f(x) = seed + cast<uint32_t>(x);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({seed}, gpu_target());
    }
};

TEST_F(GpuAsyncOrder, ChainOfDependentKernels) {
    Callable kernel = step();
    for (int n : {1, 64, 1000, 30001}) {
        Words a(n), b(n);
        std::vector<uint32_t> expected(n);
        fill(a, [&](const int *p) { return expected[p[0]] = p[0] ^ 77; });
        b.fill(0);
        // Two buffers in turn, then one buffer in place: read after write, write after read, write after write.
        for (uint32_t i = 0; i < 200; i++) {
            ASSERT_OK(i % 2 ? kernel(b, i, a) : kernel(a, i, b));
        }
        for (uint32_t i = 0; i < 50; i++) ASSERT_OK(kernel(a, i, a));
        for (int k = 0; k < n; k++) {
            for (uint32_t i = 0; i < 200; i++) expected[k] = scramble(expected[k] + (uint32_t)k * i);
            for (uint32_t i = 0; i < 50; i++) expected[k] = scramble(expected[k] + (uint32_t)k * i);
        }
        a.copy_to_host();
        ASSERT_TRUE(matches(a, [&](const int *p) { return expected[p[0]]; })) << "n = " << n;
    }
}

// Kernels that do not depend on one another, mixed with ones that do: a runtime that leaves out barriers must leave out
// the right ones.
TEST_F(GpuAsyncOrder, RandomGraphOfKernels) {
    Callable kernel = sum();
    const int n = 500, count = 12;
    std::mt19937 random(3);
    std::vector<Words> buffers;
    std::vector<std::vector<uint32_t>> expected(count, std::vector<uint32_t>(n));
    for (int i = 0; i < count; i++) {
        buffers.emplace_back(n);
        fill(buffers[i], [&](const int *p) { return expected[i][p[0]] = scramble((uint32_t)(i * n + p[0])); });
    }
    for (int launch = 0; launch < 600; launch++) {
        const int a = random() % count, b = random() % count, c = random() % count;
        ASSERT_OK(kernel(buffers[a], buffers[b], buffers[c]));
        for (int k = 0; k < n; k++) expected[c][k] = expected[a][k] + expected[b][k];
    }
    for (int i = 0; i < count; i++) {
        buffers[i].copy_to_host();
        ASSERT_TRUE(matches(buffers[i], [&](const int *p) { return expected[i][p[0]]; })) << "buffer " << i;
    }
}

// The host array is refilled at once after each launch, and the device buffer is one and the same: upload N+1 must wait
// for the readers of upload N, and its bytes must have been taken when the call returns.
TEST_F(GpuAsyncOrder, UploadsIntoTheSameBuffer) {
    Callable kernel = sum();
    const int outs = 32;
    for (int n : {33, 20000}) {
        Words in(n), base(n);
        fill(base, [](const int *p) { return p[0] * 11; });
        std::vector<Words> out;
        for (int i = 0; i < outs; i++) out.emplace_back(n);
        const int rounds = n < 100 ? 2000 : 200;
        for (int i = 0; i < rounds; i++) {
            if (i >= outs) {
                out[i % outs].copy_to_host();
                ASSERT_TRUE(matches(out[i % outs], [&](const int *p) { return p[0] * 11 + (i - outs); })) << i;
            }
            in.fill(i);
            in.set_host_dirty();
            ASSERT_OK(kernel(in, base, out[i % outs]));
        }
    }
}

// The same with two pipelines that read the input, and four outputs each that take turns.
TEST_F(GpuAsyncOrder, TwoPipelinesReadOneReuploadedInput) {
    Callable add = sum(), stir = step();
    const int n = 100;
    Words in(n), base(n);
    fill(base, [](const int *p) { return p[0] * 11; });
    std::vector<Words> sums, stirred;
    for (int i = 0; i < 4; i++) {
        sums.emplace_back(n);
        stirred.emplace_back(n);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        in.fill(i);
        in.set_host_dirty();
        ASSERT_OK(add(in, base, sums[i % 4]));
        ASSERT_OK(stir(in, i, stirred[i % 4]));
        if (i % 4 != 3) continue;
        for (uint32_t k = i - 3; k <= i; k++) {
            ASSERT_OK(sums[k % 4].copy_to_host());
            ASSERT_OK(stirred[k % 4].copy_to_host());
            ASSERT_TRUE(matches(sums[k % 4], [&](const int *p) { return (uint32_t)p[0] * 11 + k; })) << k;
            ASSERT_TRUE(matches(stirred[k % 4], [&](const int *p) { return scramble(k + (uint32_t)p[0] * k); })) << k;
        }
    }
}

TEST_F(GpuAsyncOrder, BothOperandsReuploaded) {
    Callable kernel = sum();
    const int n = 3001;
    Words a(n), b(n);
    std::vector<Words> out;
    for (uint32_t i = 0; i < 300; i++) {
        a.fill(i);
        a.set_host_dirty();
        b.fill(i * 1000);
        b.set_host_dirty();
        out.emplace_back(n);
        ASSERT_OK(kernel(a, b, out.back()));
        ASSERT_OK(kernel(a, out.back(), out.back()));
    }
    for (uint32_t i = 0; i < 300; i++) {
        out[i].copy_to_host();
        ASSERT_TRUE(matches(out[i], [&](const int *) { return i * 1002; })) << "round " << i;
    }
}

// A buffer is freed when the copy out of it is only recorded, and the next one of its size is written at once: the copy
// must still see the old bytes.
TEST_F(GpuAsyncOrder, FreedAfterARecordedCopy) {
    Callable kernel = constant();
    const halide_device_interface_t *interface = vulkan_interface();
    for (uint32_t round = 0; round < 1500; round++) {
        const int n = 1 + (round * 37) % 3000;
        Words a(nullptr, n), b(n), c(nullptr, n);
        allocate_on_device(a);
        ASSERT_OK(kernel(round, a));
        ASSERT_OK(interface->buffer_copy(nullptr, a.raw_buffer(), interface, b.raw_buffer()));
        a.device_free();
        allocate_on_device(c);
        ASSERT_OK(kernel(round + 1000000, c));
        b.copy_to_host();
        ASSERT_TRUE(matches(b, [&](const int *p) { return round + p[0]; })) << "round " << round;
    }
}

TEST_F(GpuAsyncOrder, UploadLaunchFree) {
    Callable kernel = step();
    std::vector<Words> out;
    for (uint32_t round = 0; round < 600; round++) {
        const int n = 1 + (round * 97) % 5000;
        Words in(n);
        fill(in, [&](const int *p) { return p[0] + round; });
        out.emplace_back(n);
        ASSERT_OK(kernel(in, round, out.back()));
        // `in` goes here: its upload and the launch may not even be submitted.
    }
    for (uint32_t round = 0; round < 600; round++) {
        out[round].copy_to_host();
        ASSERT_TRUE(matches(out[round], [&](const int *p) { return scramble(p[0] + round + (uint32_t)p[0] * round); }));
    }
}

TEST_F(GpuAsyncOrder, ThousandLaunchesOneCheck) {
    Callable kernel = step();
    const int n = 64;
    Words a(n);
    a.fill(1);
    a.set_host_dirty();
    std::vector<uint32_t> expected(n, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        ASSERT_OK(kernel(a, i, a));
        for (int k = 0; k < n; k++) expected[k] = scramble(expected[k] + (uint32_t)k * i);
    }
    a.device_sync();
    a.copy_to_host();
    EXPECT_TRUE(matches(a, [&](const int *p) { return expected[p[0]]; }));
}

// device_sync with a buffer, and without one, returns only when earlier work is done. A kernel writes memory that the
// runtime then reads back by a second route: the copy after the sync has to wait for nothing.
TEST_F(GpuAsyncOrder, SyncIsASync) {
    Callable kernel = constant();
    auto *sync = runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");
    for (uint32_t i = 0; i < 50; i++) {
        Words a(5000);
        ASSERT_OK(kernel(i, a));
        ASSERT_OK(i % 2 ? a.device_sync() : sync(nullptr, vulkan_interface()));
        ASSERT_OK(sync(nullptr, vulkan_interface()));
        a.copy_to_host();
        ASSERT_TRUE(matches(a, [&](const int *p) { return i + p[0]; }));
    }
}

// Stages on the CPU and on the GPU in turn, in one pipeline: each copy waits for exactly what it needs.
TEST_F(GpuAsyncOrder, CpuAndGpuStagesInTurn) {
    std::vector<Func> stages;
    for (int i = 0; i < 8; i++) {
        Func f("stage" + std::to_string(i));
        Expr before = i == 0 ? cast<uint32_t>(x) + seed : stages.back()(x) + stages.back()(x + 1);
        f(x) = scramble(before);
        f.compute_root();
        if (i % 2 == 0) f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        stages.push_back(f);
    }
    Callable pipeline = stages.back().compile_to_callable({seed}, gpu_target());
    const int n = 777;
    for (uint32_t s : {1u, 99u, 123456u}) {
        std::vector<uint32_t> values(n + 8);
        for (int i = 0; i < n + 8; i++) values[i] = scramble((uint32_t)i + s);
        for (int stage = 1; stage < 8; stage++) {
            for (int i = 0; i + 1 < (int)values.size(); i++) values[i] = scramble(values[i] + values[i + 1]);
        }
        Words out(n);
        ASSERT_OK(pipeline(s, out));
        out.copy_to_host();
        ASSERT_TRUE(matches(out, [&](const int *p) { return values[p[0]]; }));
    }
}

}  // namespace
