// What each operation asks of the driver in steady state: submissions, waits, copies, barriers, counted exactly.
//
// HL_VK_FLUSH=count makes the policy look at counts alone, so that a figure is the same however fast machine and device
// are. Each test warms an operation up, does it kCount times, closes with a sync, and holds the counts of the layer in
// front of the driver to what is promised. In every row nothing is created, destroyed, allocated, freed or mapped, and
// nothing is allocated on the host.
//
// Run on the device as it is and as if it had the memory of a discrete GPU (HV_TEST_MEMORY): there copies go through
// staging and copy commands, where lavapipe's own memory is written and read by the CPU.
//
// Stock: every row fails (3 submissions, 3 waits, 3 pools made for upload + launch + download).

#include "jit_allocations.h"
#include "support.h"

#include <functional>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

// Ten whole batches of 64 commands, fewer than the 16 that may be in flight, so that nothing has to be waited for.
constexpr uint32_t kCount = 640;
constexpr int k64KiB = 16384;  // words

// Whether downloads go through memory of the host's, and uploads too.
bool is_discrete() { return std::getenv("HV_TEST_MEMORY") || hv_layer_is_discrete(); }

struct Counts {
    uint64_t before_sync = 0;  // all calls, without the closing sync
    uint64_t waits = 0;        // likewise
    uint64_t polls = 0;        // likewise: how many depends on how fast the device is
    uint64_t queue_idles = 0, submits = 0, made = 0, copies = 0, dispatches = 0, fills = 0;
    uint64_t barriers = 0, host_barriers = 0;  // between commands; for the CPU alone
    uint64_t pipeline_binds = 0, set_binds = 0, set_updates = 0, host_allocations = 0;
};

uint64_t sum_of(std::initializer_list<const char *> prefixes) {
    uint64_t sum = 0;
    for (const char *prefix : prefixes) sum += hv_layer_count_prefix(prefix);
    return sum;
}

class GpuCallsPerOperation : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"}, xo{"xo"};
    ImageParam input{UInt(32), 1, "input"};
    Param<uint32_t> seed{"seed"};
    int (*sync_global)(void *, const halide_device_interface_t *) =
        runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");

    Callable compile() {
        Func f("f");
        f(x) = scramble(input(x) + seed);
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, seed}, gpu_target());
    }

    static uint64_t made() {
        return sum_of({"vkCreate", "vkDestroy", "vkAllocate", "vkFree", "vkMapMemory", "vkUnmapMemory", "vkBindBuffer",
                       "vkResetDescriptorPool"});
    }

    void sync() { ASSERT_OK(sync_global(nullptr, vulkan_interface())); }

    Counts count_once(const std::function<void(uint32_t)> &operation) {
        Counts c;
        hv_layer_reset();
        jit_allocations = 0;
        counting = true;
        for (uint32_t i = 0; i < kCount && !HasFatalFailure(); i++) operation(i);
        counting = false;
        c.before_sync = hv_layer_count_prefix("vk");
        c.queue_idles = sum_of({"vkQueueWaitIdle", "vkDeviceWaitIdle"});
        c.waits = c.queue_idles + sum_of({"vkWaitForFences", "vkWaitSemaphores"});
        c.polls = sum_of({"vkGetFenceStatus", "vkGetSemaphoreCounterValue"});
        sync();
        c.submits = hv_layer_count_prefix("vkQueueSubmit");
        c.copies = hv_layer_count_prefix("vkCmdCopyBuffer");
        c.fills = sum_of({"vkCmdFillBuffer", "vkCmdUpdateBuffer"});
        c.dispatches = hv_layer_count_prefix("vkCmdDispatch");
        c.host_barriers = hv_layer_host_barriers();
        c.barriers = hv_layer_count_prefix("vkCmdPipelineBarrier") - c.host_barriers;
        c.pipeline_binds = hv_layer_count_prefix("vkCmdBindPipeline");
        c.set_binds = sum_of({"vkCmdBindDescriptorSets", "vkCmdPushDescriptorSet"});
        c.set_updates = hv_layer_count_prefix("vkUpdateDescriptorSet");
        c.made = made();
        c.host_allocations = jit_allocations;
        return c;
    }

    // Does the operation until the caches are full, then kCount times more, counted. `mallocs_of_halide`: of the host,
    // by the pipeline itself, in each operation.
    Counts count(const std::function<void(uint32_t)> &operation, uint64_t mallocs_of_halide = 0) {
        // Staging grows to its 60 MiB as long as uploads come faster than they are done, and on a busy machine the
        // software device falls behind further than it did while warming up. What never becomes steady fails.
        Counts c;
        for (int round = 0; round < 5 && !HasFatalFailure(); round++) {
            for (uint32_t i = 0; i < 2 * kCount && !HasFatalFailure(); i++) operation(i);
            sync();
            c = count_once(operation);
            if (c.made == 0) break;
        }
        print(c);
        EXPECT_EQ(c.made, 0u) << "objects created, destroyed, allocated, freed or mapped";
        EXPECT_EQ(c.host_allocations, mallocs_of_halide * kCount);
        EXPECT_EQ(c.fills, 0u);
        EXPECT_LE(c.host_barriers, c.submits) << "at most one, at the end of a submission";
        EXPECT_EQ(c.queue_idles, 0u) << "waits are for fences of our own work, never for the whole queue";
        if (HasFailure()) hv_layer_print(stdout);
        return c;
    }

    void print(const Counts &c) {
        const auto each = [](uint64_t n) { return (double)n / kCount; };
        printf("%-34s submits %.3f waits %.3f copies %.3f dispatches %.3f barriers %.3f calls %.2f\n",
               ::testing::UnitTest::GetInstance()->current_test_info()->name(), each(c.submits), each(c.waits),
               each(c.copies), each(c.dispatches), each(c.barriers), each(c.before_sync));
    }

    // Launches only: nothing is waited for, 16 share a submission, and each is recorded once.
    void expect_launches(const Counts &c, uint64_t launches) {
        EXPECT_EQ(c.waits, 0u);
        EXPECT_LE(c.submits, launches / 16);
        EXPECT_EQ(c.dispatches, launches);
        EXPECT_LE(c.pipeline_binds, launches);
        EXPECT_LE(c.set_binds, launches);
        EXPECT_LE(c.set_updates, launches);
        EXPECT_EQ(c.copies, 0u);
    }

    // Each launch needs what the one before it wrote: a barrier, except before the first and where a batch begins when
    // all before it is done.
    void expect_dependent(const Counts &c) {
        EXPECT_LE(c.barriers, kCount - 1);
        EXPECT_GE(c.barriers, kCount - c.submits);
    }

    void TearDown() override {
        counting = false;
        EXPECT_GT(hv_layer_instances(), 0u) << "the counting layer is not in use";
        const char *policy = std::getenv("HL_VK_FLUSH");
        EXPECT_TRUE(policy && std::strcmp(policy, "count") == 0) << "the default policy looks at time";
    }
};

Words on_device(int size, uint32_t value) {
    Words words(size);
    words.fill(value);
    words.set_host_dirty();
    EXPECT_EQ(words.copy_to_device(vulkan_interface()), 0);
    return words;
}

TEST_F(GpuCallsPerOperation, LaunchIndependent) {
    Callable kernel = compile();
    const Words in = on_device(64, 5);
    std::vector<Words> outs;
    for (uint32_t i = 0; i < kCount; i++) outs.push_back(on_device(64, 0));
    const Counts c = count([&](uint32_t i) { ASSERT_OK(kernel(Words(in), i, outs[i % kCount])); });
    expect_launches(c, kCount);
    EXPECT_EQ(c.barriers, 0u);
    for (uint32_t i = 0; i < kCount; i++) {
        outs[i].copy_to_host();
        EXPECT_TRUE(matches(outs[i], [&](const int *) { return scramble(5 + i); }));
    }
}

// A thousand realizes of a small kernel, and one sync: 16 launches or more share a submission, and hardly anything is
// waited for.
TEST_F(GpuCallsPerOperation, ThousandRealizesOneSync) {
    Func f("f");
    f(x) = scramble(cast<uint32_t>(x) + seed);
    f.gpu_tile(x, xi, 32);
    std::vector<Buffer<uint32_t>> outs;
    for (int i = 0; i < 16; i++) outs.emplace_back(64);
    const auto realize = [&](uint32_t i) {
        seed.set(i);
        f.realize(outs[i % 16], gpu_target());
    };
    for (uint32_t i = 0; i < 16; i++) realize(i);
    sync();
    hv_layer_reset();
    for (uint32_t i = 0; i < 1000; i++) realize(i);
    sync();
    EXPECT_EQ(hv_layer_count_prefix("vkCmdDispatch"), 1000u);
    EXPECT_LE(hv_layer_count_prefix("vkQueueSubmit"), 1000u / 16 + 1);
    EXPECT_EQ(sum_of({"vkQueueWaitIdle", "vkDeviceWaitIdle"}), 0u);
    // The sync's, and a slow device may have to be waited for when 16 submissions are on their way.
    EXPECT_LE(hv_layer_count("vkWaitForFences") + hv_layer_count("vkWaitSemaphores"), 3u);
    for (uint32_t i = 1000 - 16; i < 1000; i++) {
        outs[i % 16].copy_to_host();
        EXPECT_TRUE(matches(outs[i % 16], [&](const int *p) { return scramble((uint32_t)p[0] + i); }));
    }
}

// Outputs that do not touch: the tracker holds 32 such ranges, then a barrier stands in for them.
TEST_F(GpuCallsPerOperation, LaunchIndependentScattered) {
    Callable kernel = compile();
    const Words in = on_device(64, 5);
    std::vector<Words> outs, between;
    for (uint32_t i = 0; i < kCount; i++) {
        outs.push_back(on_device(64, 0));
        between.push_back(on_device(64, 0));
    }
    const Counts c = count([&](uint32_t i) { ASSERT_OK(kernel(Words(in), i, outs[i % kCount])); });
    expect_launches(c, kCount);
    EXPECT_LE(c.barriers, kCount / 31);
}

TEST_F(GpuCallsPerOperation, LaunchDependent) {
    Callable kernel = compile();
    Words a = on_device(64, 1), b = on_device(64, 1);
    const Counts c = count([&](uint32_t i) { ASSERT_OK(i % 2 ? kernel(b, i, a) : kernel(a, i, b)); });
    expect_launches(c, kCount);
    expect_dependent(c);
}

TEST_F(GpuCallsPerOperation, LaunchWithSharedMemory) {
    Func staged("staged"), f("f");
    staged(x) = input(x) + seed;
    f(x) = staged(x) + staged(x + 1);
    f.gpu_tile(x, xo, xi, 32, TailStrategy::GuardWithIf);
    staged.compute_at(f, xo).store_in(MemoryType::GPUShared).gpu_threads(x);
    Callable kernel = f.compile_to_callable({input, seed}, gpu_target());
    Words a = on_device(65, 3), b = on_device(64, 1);
    const Counts c = count([&](uint32_t i) { ASSERT_OK(kernel(a, i, b)); });
    expect_launches(c, kCount);
    expect_dependent(c);
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return 2 * (3 + kCount - 1); }));
}

// As a launch, and one bind: two workgroup sizes are two pipelines, both kept. The same pipeline again is bound
// already.
TEST_F(GpuCallsPerOperation, LaunchWithDynamicWorkgroups) {
    Param<int> width("width");
    Func f("f");
    f(x) = scramble(input(x) + seed);
    f.gpu_tile(x, xi, width, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input, seed, width}, gpu_target());
    Words a = on_device(64, 5), b = on_device(64, 1);
    const Counts same = count([&](uint32_t i) { ASSERT_OK(kernel(a, i, 16, b)); });
    expect_launches(same, kCount);
    const Counts alternating = count([&](uint32_t i) { ASSERT_OK(kernel(a, i, i % 2 ? 8 : 16, b)); });
    expect_launches(alternating, kCount);
    // Besides polls, and barriers that a batch does without where all before it is done.
    const auto fixed = [](const Counts &c) { return c.before_sync - c.polls - c.barriers - c.pipeline_binds; };
    EXPECT_NEAR((double)fixed(alternating), (double)fixed(same), 3)
        << "it costs no other call more; a batch may be begun ahead before one and not before the other";
    EXPECT_EQ(alternating.pipeline_binds, kCount);
    EXPECT_EQ(same.pipeline_binds, kCount / 64) << "one for each batch";
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return scramble(5 + kCount - 1); }));
}

TEST_F(GpuCallsPerOperation, FourDependentKernels) {
    Func stage[4];
    for (int i = 0; i < 4; i++) {
        stage[i] = Func("stage");
        stage[i](x) = i == 0 ? scramble(input(x) + seed) : scramble(stage[i - 1](x));
        stage[i].compute_root().gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    }
    Callable pipeline = stage[3].compile_to_callable({input, seed}, gpu_target());
    Words a = on_device(64, 5), b = on_device(64, 1);
    // For each intermediate Halide asks for 0 bytes of host memory, though it lives on the device alone.
    const Counts c = count([&](uint32_t i) { ASSERT_OK(pipeline(a, i, b)); }, 3);
    EXPECT_LE(c.submits, 4u * kCount / 16);
    EXPECT_EQ(c.dispatches, 4u * kCount);
    EXPECT_LE(c.barriers, 4u * kCount);
    EXPECT_EQ(c.copies, 0u);
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return scramble(scramble(scramble(scramble(5 + kCount - 1)))); }));
}

TEST_F(GpuCallsPerOperation, LaunchAndSync) {
    Callable kernel = compile();
    Words a = on_device(64, 1), b = on_device(64, 1);
    const Counts c = count([&](uint32_t i) {
        ASSERT_OK(kernel(a, i, b));
        ASSERT_OK(b.device_sync());
    });
    EXPECT_EQ(c.submits, kCount);
    EXPECT_LE(c.waits, kCount);
    EXPECT_EQ(c.dispatches, kCount);
    EXPECT_EQ(c.barriers, 0u);
}

// A sync that finds another's submission in flight joins its launch to the next: fewer submissions, and at times a wait
// for the one it found before that for its own.
TEST_F(GpuCallsPerOperation, LaunchAndSyncFromFourThreads) {
    Callable kernel = compile();
    const Words in = on_device(64, 1);
    std::vector<Words> outs;
    for (int i = 0; i < 4; i++) outs.push_back(on_device(64, 0));
    const auto four = [&](uint32_t begin, uint32_t each) {
        std::vector<std::thread> threads;
        for (Words &out : outs) {
            threads.emplace_back([&] {
                for (uint32_t i = begin; i < begin + each; i++) {
                    EXPECT_EQ(kernel(Words(in), i, out), 0);
                    EXPECT_EQ(out.device_sync(), 0);
                }
            });
        }
        for (std::thread &thread : threads) thread.join();
    };
    // One "operation" is four launches and syncs, by four threads that are started only now and then.
    const Counts c = count([&](uint32_t i) {
        if (i % 64 == 0) four(i, 64);
    });
    EXPECT_LE(c.submits, 4u * kCount);
    EXPECT_LE(c.waits, 2 * 4u * kCount);
    EXPECT_EQ(c.dispatches, 4u * kCount);
}

TEST_F(GpuCallsPerOperation, IdleSync) {
    Callable kernel = compile();
    Words a = on_device(64, 1), b = on_device(64, 1);
    ASSERT_OK(kernel(a, 1u, b));
    const Counts c = count([&](uint32_t) {
        ASSERT_OK(sync_global(nullptr, vulkan_interface()));
        ASSERT_OK(b.device_sync());
    });
    EXPECT_EQ(c.before_sync, 0u);
}

TEST_F(GpuCallsPerOperation, MallocAndFree) {
    Words buffer(nullptr, k64KiB);
    const Counts c = count([&](uint32_t) {
        ASSERT_OK(buffer.device_malloc(vulkan_interface()));
        ASSERT_OK(buffer.device_free());
    });
    EXPECT_EQ(c.before_sync, 0u);
}

TEST_F(GpuCallsPerOperation, MallocAndFreeOfEightSizes) {
    std::vector<Words> buffers;
    for (int i = 0; i < 8; i++) buffers.emplace_back(nullptr, k64KiB << i);
    const Counts c = count([&](uint32_t) {
        for (Words &buffer : buffers) ASSERT_OK(buffer.device_malloc(vulkan_interface()));
        for (Words &buffer : buffers) ASSERT_OK(buffer.device_free());
    });
    EXPECT_EQ(c.before_sync, 0u);
}

TEST_F(GpuCallsPerOperation, Upload) {
    Words a = on_device(k64KiB, 1);
    const Counts c = count([&](uint32_t i) {
        a(7) = i;
        ASSERT_OK(a.copy_to_device(vulkan_interface()));
    });
    EXPECT_EQ(c.waits, 0u);
    EXPECT_EQ(c.dispatches, 0u);
    if (is_discrete() && c.copies > 0) {  // none where the CPU sees all of the device's memory
        EXPECT_EQ(c.copies, kCount);
        EXPECT_LE(c.submits, kCount / 16);
    } else {
        EXPECT_EQ(c.before_sync, 0u) << "written by the CPU";
    }
    a(7) = 0;
    a.set_host_dirty(false);
    a.set_device_dirty();
    a.copy_to_host();
    EXPECT_TRUE(matches(a, [](const int *p) { return p[0] == 7 ? kCount - 1 : 1; }));
}

TEST_F(GpuCallsPerOperation, UploadAndSync) {
    Words a = on_device(k64KiB, 1);
    const Counts c = count([&](uint32_t i) {
        a(7) = i;
        ASSERT_OK(a.copy_to_device(vulkan_interface()));
        ASSERT_OK(a.device_sync());
    });
    const uint32_t each = is_discrete() && c.copies > 0 ? kCount : 0;
    EXPECT_EQ(c.copies, each);
    EXPECT_EQ(c.submits, each);
    EXPECT_LE(c.waits, each);
}

// The launch before is reading the buffer, so the bytes go through staging on every device.
TEST_F(GpuCallsPerOperation, UploadAndLaunch) {
    Callable kernel = compile();
    Words a = on_device(k64KiB, 1), b = on_device(k64KiB, 1);
    const Counts c = count([&](uint32_t i) {
        a(7) = i;
        ASSERT_OK(kernel(a, i, b));
    });
    EXPECT_LE(c.copies, kCount);
    EXPECT_EQ(c.dispatches, kCount);
    EXPECT_LE(c.submits, 2 * kCount / 16);
    EXPECT_LE(c.barriers, 2 * kCount);
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *p) { return scramble(p[0] == 7 ? 2 * (kCount - 1) : kCount); }));
}

TEST_F(GpuCallsPerOperation, UploadLaunchDownload) {
    Callable kernel = compile();
    Words a = on_device(k64KiB, 1), b = on_device(k64KiB, 1);
    const Counts c = count([&](uint32_t i) {
        a(7) = i;
        ASSERT_OK(kernel(a, i, b));
        ASSERT_OK(b.copy_to_host());
        ASSERT_EQ(b(7), scramble(i + i));
        b.set_host_dirty(false);
    });
    EXPECT_EQ(c.submits, kCount);
    EXPECT_LE(c.waits, kCount);
    EXPECT_EQ(c.dispatches, kCount);
    EXPECT_LE(c.copies, is_discrete() ? 2 * kCount : 0);
}

TEST_F(GpuCallsPerOperation, Download) {
    Words a = on_device(k64KiB, 9);
    const Counts c = count([&](uint32_t) {
        a.set_device_dirty();
        ASSERT_OK(a.copy_to_host());
    });
    const uint32_t each = is_discrete() ? kCount : 0;
    EXPECT_EQ(c.copies, each);
    EXPECT_EQ(c.submits, each);
    EXPECT_LE(c.waits, each);
    EXPECT_TRUE(matches(a, [](const int *) { return 9; }));
}

TEST_F(GpuCallsPerOperation, DeviceCopy) {
    Words from = on_device(k64KiB, 9);
    std::vector<Words> to;
    for (int i = 0; i < 4; i++) to.push_back(on_device(k64KiB, 0));
    const Counts c = count([&](uint32_t i) {
        from.set_device_dirty();
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, from, vulkan_interface(), to[i % to.size()]));
    });
    EXPECT_EQ(c.waits, 0u);
    EXPECT_EQ(c.copies + c.dispatches, kCount);
    EXPECT_LE(c.submits, kCount / 16);
    EXPECT_LE(c.barriers, kCount / 4) << "only where a destination comes again";
    for (Words &words : to) {
        words.set_device_dirty();
        words.copy_to_host();
        EXPECT_TRUE(matches(words, [](const int *) { return 9; }));
    }
}

// A tiled application makes and drops crops in every call.
TEST_F(GpuCallsPerOperation, LaunchOverCrops) {
    Callable kernel = compile();
    Words a = on_device(1024, 3), b = on_device(1024, 1);
    const Counts c = count([&](uint32_t i) {
        const int at = (int)(i % 8) * 128;
        Words in = a.cropped(0, at, 128), out = b.cropped(0, at, 128);
        ASSERT_OK(kernel(in, i, out));
    });
    expect_launches(c, kCount);
    EXPECT_LE(c.barriers, kCount / 8 + kCount / 64);
}

}  // namespace
