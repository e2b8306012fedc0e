// scenarios.h: what programs do with the runtime, each as a few steps whose results can be checked.
//
// A scenario names the mock device it runs on and the options it needs; `prepare` runs before anything fails, `body`
// while it does. The body is run again afterwards without a failure and must then be right, so it makes no assumption
// about what an earlier run left.

#ifndef HALIDE_VULKAN_FAULT_SCENARIOS_H
#define HALIDE_VULKAN_FAULT_SCENARIOS_H

#include "fault_trial.h"

#include <memory>
#include <thread>
#include <utility>

extern "C" {
uintptr_t halide_vulkan_get_vk_buffer(void *user_context, halide_buffer_t *buf);
int halide_vulkan_wrap_vk_buffer(void *user_context, halide_buffer_t *buf, uint64_t handle);
int halide_vulkan_detach_vk_buffer(void *user_context, halide_buffer_t *buf);
int halide_vulkan_release_unused_device_allocations(void *user_context);
int halide_vulkan_device_release(void *user_context);
void halide_vulkan_set_layer_names(const char *names);
}

namespace fault {

struct Scenario {
    std::string name;
    std::string profile = "plain";
    std::vector<std::pair<std::string, std::string>> options;
    int completion = MOCK_AFTER_POLLS;
    uint32_t polls = 2;
    std::function<void(Trial &)> prepare;
    std::function<void(Trial &)> body;
};

inline void PrintTo(const Scenario &s, std::ostream *to) { *to << s.name; }

inline Kernel &line_kernel() {
    static Kernel &it = *new Kernel("line_v21", "_kernel_line", 1);
    return it;
}
inline Kernel &vector_kernel() {
    static Kernel &it = *new Kernel("vector_main", "_kernel_vect", 4);
    return it;
}
// A kernel that the runtime has never seen, each time another.
inline std::unique_ptr<Kernel> new_kernel() {
    static int count = 0;
    std::string name = "_kernel_n";
    for (int rest = count++, i = 0; i < 3; i++, rest /= 26) name += (char)('a' + rest % 26);
    return std::make_unique<Kernel>("line_v21", name, 1);
}

inline void fill(Ints &buffer, int factor) {
    int32_t *p = buffer.data();
    for (int i = 0; i < buffer.width(); i++) p[i] = (buffer.min(0) + i) * factor;
    buffer.set_host_dirty();
}
inline bool upload(Trial &run, Ints &buffer, int factor) {
    fill(buffer, factor);
    return run.step("upload", [&] { return buffer.copy_to_device(vulkan()); });
}
inline bool allocate(Trial &run, Ints &buffer) {
    return run.step("allocate", [&] { return buffer.device_malloc(vulkan()); });
}
inline bool launch(Trial &run, Ints &out, Ints &in, int add, int depth = 1) {
    return run.step("launch", [&] { return line_kernel()(out, in, in.width(), add, depth); });
}
inline bool sync(Trial &run) {
    return run.step("sync", [&] { return halide_device_sync_global(nullptr, vulkan()); });
}
inline int copy_on_device(Ints &from, Ints &to) {
    from.set_host_dirty(false);
    from.set_device_dirty();
    const int code = halide_buffer_copy(nullptr, from, vulkan(), to);
    from.set_device_dirty(false);
    return code;
}

// Upload, launch, download.
inline void round_trip(Trial &run, int n, int add) {
    Ints in(n), out(n);
    upload(run, in, 3);
    allocate(run, out);
    launch(run, out, in, add);
    run.expect_contents("download", out, [&](int i) { return i * 3 + add; });
}
inline void small_round_trip(Trial &run) { round_trip(run, 1000, 5); }

// Launches that depend on each other.
inline void launches_in_a_row(Trial &run, int count) {
    Ints a(300), b(300);
    upload(run, a, 2);
    allocate(run, b);
    for (int i = 0; i < count; i++) launch(run, i % 2 ? a : b, i % 2 ? b : a, 1);
    run.expect_contents("download", a, [count](int i) { return i * 2 + count; });
}
// More than one batch holds.
inline void batch(Trial &run) { launches_in_a_row(run, 70); }

constexpr int kLarge = 2300000;  // 9.2 MB: three pieces of staging

inline void large_copies(Trial &run) {
    Ints a(kLarge);
    upload(run, a, 7);
    a.fill(0);
    run.expect_contents("download", a, [](int i) { return i * 7; });
}

inline void device_copies(Trial &run) {
    // The second by the copy kernel, where the device is a GPU: 256 KiB and more.
    for (int n : {50, 100003}) {
        Ints a(n), b(n);
        upload(run, a, 3);
        allocate(run, b);
        run.step("device copy", [&] { return copy_on_device(a, b); });
        run.expect_contents("download", b, [](int i) { return i * 3; });
    }
}

// Source and destination are parts of one buffer and overlap.
inline void overlapping_copy(Trial &run) {
    Ints base(400);
    if (!upload(run, base, 1)) return;
    {
        Ints from = base.cropped(0, 0, 300), to = base.cropped(0, 100, 300);
        to.raw_buffer()->dim[0].min = 0;  // translate() would drop the device side
        run.step("device copy", [&] { return copy_on_device(from, to); });
    }
    run.expect_contents("download", base, [](int i) { return i < 100 ? i : i - 100; });
}

inline void strided_copies(Trial &run) {
    // Every third element of a row, every second row: gaps that must stay.
    Halide::Runtime::Buffer<int32_t, 2> whole(30, 20);
    whole.fill(-1);
    halide_dimension_t shape[2] = {{0, 10, 3, 0}, {0, 10, 60, 0}};
    Halide::Runtime::Buffer<int32_t, 2> view(whole.data(), 2, shape);
    for (int y = 0; y < 10; y++) {
        for (int x = 0; x < 10; x++) view(x, y) = x + 10 * y;
    }
    view.set_host_dirty();
    run.step("upload", [&] { return view.copy_to_device(vulkan()); });
    whole.fill(-1);
    view.set_host_dirty(false);
    view.set_device_dirty(true);
    if (run.step("download", [&] { return view.copy_to_host(); })) {
        for (int y = 0; y < 20; y++) {
            for (int x = 0; x < 30; x++) {
                const int want = x % 3 == 0 && y % 2 == 0 ? x / 3 + 10 * (y / 2) : -1;
                if (whole(x, y) != want) run.expect(false, "a strided copy is wrong at " + std::to_string(x));
            }
        }
    }
    view.set_device_dirty(false);
}

inline void crops(Trial &run) {
    Ints in(200), out(200);
    upload(run, in, 3);
    if (!upload(run, out, -1)) return;
    // Element 1 needs the relocated kernel, 64 a descriptor at another place.
    for (int at : {1, 64}) {
        halide_buffer_t raw = {};
        halide_dimension_t dim = {at, 50, 1, 0};
        raw.type = halide_type_of<int32_t>();
        raw.dimensions = 1;
        raw.dim = &dim;
        if (!run.step("crop", [&] { return vulkan()->device_crop(nullptr, out, &raw); })) break;
        Ints from(50);
        if (upload(run, from, 2)) run.step("launch into the crop", [&] { return line_kernel()(&raw, from, 50, at); });
        raw.set_device_dirty(false);
        halide_device_release_crop(nullptr, &raw);
    }
    run.expect_contents("download", out, [](int i) {
        return i >= 1 && i < 51 ? (i - 1) * 2 + 1 : i >= 64 && i < 114 ? (i - 64) * 2 + 64 : -i;
    });
}

// A kernel of vectors and a crop at no whole vector: the argument is copied to an aligned place and back.
inline void bounced_crop(Trial &run) {
    Ints in(80), out(200);
    upload(run, in, 3);
    if (!upload(run, out, -1)) return;
    halide_buffer_t raw = {};
    halide_dimension_t dim = {33, 80, 1, 0};
    raw.type = halide_type_of<int32_t>();
    raw.dimensions = 1;
    raw.dim = &dim;
    if (run.step("crop", [&] { return vulkan()->device_crop(nullptr, out, &raw); })) {
        run.step("launch", [&] { return vector_kernel()(&raw, in, 80, 7); });
        raw.set_device_dirty(false);
        halide_device_release_crop(nullptr, &raw);
    }
    run.expect_contents("download", out, [](int i) { return i >= 33 && i < 113 ? (i - 33) * 3 + 7 : -i; });
}

inline void free_in_flight(Trial &run) {
    Ints in(500), last(500);
    upload(run, in, 3);
    allocate(run, last);
    for (int i = 0; i < 6; i++) {
        Ints out(500);
        if (!allocate(run, out)) break;
        launch(run, out, in, i);
        if (i == 5) run.step("device copy", [&] { return copy_on_device(out, last); });
        out.set_device_dirty(false);
        // Freed here, while its kernel is recorded or runs; the next may get its memory.
    }
    run.expect_contents("download", last, [](int i) { return i * 3 + 5; });
}

// More workgroup sizes than a kernel keeps pipelines for, so that old ones die.
inline void specializations(Trial &run) {
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    for (int depth = 1; depth <= 10; depth++) launch(run, out, in, depth, depth);
    run.expect_contents("download", out, [](int i) { return i * 3 + 10; });
}

inline void trim(Trial &run) {
    {
        Ints a(5000000);  // a block of its own
        allocate(run, a);
    }
    run.step("release unused", [&] { return halide_vulkan_release_unused_device_allocations(nullptr); });
    small_round_trip(run);
    run.step("release unused", [&] { return halide_vulkan_release_unused_device_allocations(nullptr); });
}

inline void release_with_work_in_flight(Trial &run) {
    {
        Ints in(1000), out(1000);
        upload(run, in, 3);
        allocate(run, out);
        launch(run, out, in, 1);
        out.set_device_dirty(false);
        // Says nothing and succeeds, whatever went wrong before.
        const int code = halide_vulkan_device_release(nullptr);
        run.expect(code == 0, "release returned " + std::to_string(code));
    }
    small_round_trip(run);
}

inline void two_threads(Trial &run) {
    Trial other;
    std::thread thread([&] {
        Trial own;
        for (int i = 0; i < 4; i++) round_trip(own, 700, i);
        other.join(own);
    });
    for (int i = 0; i < 4; i++) round_trip(run, 500, 10 + i);
    thread.join();
    run.join(other);
}

// Frees that give memory back at once.
inline void without_reuse(Trial &run) {
    halide_reuse_device_allocations(nullptr, false);
    small_round_trip(run);
    small_round_trip(run);
    halide_reuse_device_allocations(nullptr, true);
}

// A VkBuffer for the application, which begins at the data.
inline void native_handle(Trial &run) {
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    uintptr_t handle = 0;
    run.step("native handle", [&] {
        handle = halide_vulkan_get_vk_buffer(nullptr, out);
        return handle ? 0 : kNoHandle;
    });
    launch(run, out, in, 9);
    run.expect_contents("download", out, [](int i) { return i * 3 + 9; });
}

// A device whose memory is full: what is idle goes, what is in use is waited for.
inline void short_of_memory(Trial &run) {
    for (int i = 0; i < 6; i++) {
        Ints a(5000000);  // 20 MB of 64
        if (!allocate(run, a)) return;
        Ints small = a.cropped(0, 0, 100);
        Ints in(100);
        upload(run, in, 3);
        run.step("launch", [&] { return line_kernel()(small, in, 100, i); });
        run.expect_contents("download", small, [&](int k) { return k * 3 + i; });
    }
}

inline void fresh_kernel(Trial &run) {
    const std::unique_ptr<Kernel> kernel = new_kernel();
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    run.step("initialize", [&] { return kernel->initialize(); });
    if (run.step("launch", [&] { return kernel->run(out, in, 100, 4); })) kernel->finalize();
    run.expect_contents("download", out, [](int i) { return i * 3 + 4; });
}

inline void syncs(Trial &run) {
    Ints in(100), out(100);
    upload(run, in, 3);
    sync(run);
    allocate(run, out);
    launch(run, out, in, 1);
    run.step("sync of a buffer", [&] { return out.device_sync(); });
    launch(run, out, in, 2);
    sync(run);
    run.expect_contents("download", out, [](int i) { return i * 3 + 2; });
}

// So many submissions that each slot, and each fence, is used a second time.
inline void syncs_around_the_ring(Trial &run) {
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    for (int i = 0; i < 17; i++) {
        launch(run, out, in, i);
        sync(run);
    }
    run.expect_contents("download", out, [](int i) { return i * 3 + 16; });
}

// A caller that goes quiet, and comes back: the thread of ours submits.
inline void quiet_caller(Trial &run) {
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    for (int i = 0; i < 4; i++) {
        launch(run, out, in, i);
        if (i & 1) usleep(1500);
    }
    sync(run);
    run.expect_contents("download", out, [](int i) { return i * 3 + 3; });
}

inline std::vector<Scenario> scenarios() {
    using Options = std::vector<std::pair<std::string, std::string>>;
    // Submits depend on counts alone, so that the nth call is the same call in each run.
    const Options counted = {{"HL_VK_FLUSH", "count"}}, no_thread = {{"HL_VK_FLUSH_THREAD", "0"}};
    const Options staged = {{"HL_VK_FLUSH", "count"}, {"HL_VK_DIRECT", "0"}};
    const Options fences = {{"HL_VK_FLUSH", "count"}, {"HL_VK_SYNC", "fence"}};
    const Options blocking = {{"HL_VK_FLUSH", "count"}, {"HL_VK_SPIN", "0"}};
    const Options blocking_fences = {{"HL_VK_FLUSH", "count"}, {"HL_VK_SPIN", "0"}, {"HL_VK_SYNC", "fence"}};
    const auto warm = small_round_trip;
    return {
        {"FirstUse", "plain", no_thread, MOCK_AFTER_POLLS, 2, nullptr, small_round_trip},
        {"FirstUseOnVulkan10", "vulkan10", no_thread, MOCK_AT_ONCE, 0, nullptr, small_round_trip},
        {"FirstUseOnMoltenVk", "moltenvk", no_thread, MOCK_AFTER_POLLS, 2, nullptr, small_round_trip},
        {"FirstUseWithALayer",
         "plain",
         {{"HL_VK_FLUSH_THREAD", "0"}, {"LAYER", "VK_LAYER_MOCK_nothing"}},
         MOCK_AFTER_POLLS,
         2,
         nullptr,
         small_round_trip},
        {"Launch", "plain", no_thread, MOCK_AFTER_POLLS, 2, warm, small_round_trip},
        {"Batch", "plain", fences, MOCK_AFTER_POLLS, 5, warm, batch},
        {"LargeCopies", "plain", counted, MOCK_AFTER_POLLS, 2, warm, large_copies},
        {"DirectCopies", "unified", counted, MOCK_AFTER_POLLS, 2, warm, small_round_trip},
        {"NonCoherentMemory", "mobile", staged, MOCK_AFTER_POLLS, 2, warm, small_round_trip},
        {"VisibleDeviceMemory", "h200", counted, MOCK_AFTER_POLLS, 2, warm, small_round_trip},
        {"DeviceCopies", "plain", counted, MOCK_AFTER_POLLS, 2, warm, device_copies},
        {"OverlappingCopy", "plain", counted, MOCK_AFTER_POLLS, 2, warm, overlapping_copy},
        {"StridedCopies", "plain", counted, MOCK_AFTER_POLLS, 2, warm, strided_copies},
        {"Crops", "plain", fences, MOCK_AFTER_POLLS, 2, warm, crops},
        {"BouncedCrop", "plain", counted, MOCK_AFTER_POLLS, 2, warm, bounced_crop},
        {"FreeInFlight", "plain", no_thread, MOCK_AFTER_POLLS, 9, warm, free_in_flight},
        {"Specializations", "plain", fences, MOCK_AFTER_POLLS, 2, warm, specializations},
        {"Trim", "plain", counted, MOCK_AFTER_POLLS, 2, warm, trim},
        {"ReleaseWithWorkInFlight", "plain", counted, MOCK_AFTER_POLLS, 9, warm, release_with_work_in_flight},
        {"TwoThreads", "plain", {}, MOCK_AFTER_POLLS, 2, nullptr, two_threads},
        {"WithoutReuse", "plain", fences, MOCK_AFTER_POLLS, 3, warm, without_reuse},
        {"NativeHandle", "plain", counted, MOCK_AFTER_POLLS, 2, warm, native_handle},
        {"ShortOfMemory", "small", counted, MOCK_AFTER_POLLS, 9, warm, short_of_memory},
        {"FreshKernel", "plain", counted, MOCK_AFTER_POLLS, 2, warm, fresh_kernel},
        {"Syncs", "plain", counted, MOCK_AFTER_POLLS, 2, warm, syncs},
        {"BlockingWaits", "plain", blocking, MOCK_AFTER_POLLS, 9, warm, syncs},
        {"BlockingWaitsForFences", "plain", blocking_fences, MOCK_AFTER_POLLS, 9, warm, syncs_around_the_ring},
        {"ReleaseBlocking", "plain", blocking, MOCK_AFTER_POLLS, 9, warm, release_with_work_in_flight},
        {"ReleaseWithFences", "plain", fences, MOCK_AFTER_POLLS, 9, warm, release_with_work_in_flight},
        {"ReleaseBlockingForFences", "plain", blocking_fences, MOCK_AFTER_POLLS, 9, warm, release_with_work_in_flight},
        {"LargeCopiesWithThread", "plain", {}, MOCK_AFTER_POLLS, 2, warm, large_copies},
        {"Poison",
         "plain",
         {{"HL_VK_FLUSH", "count"}, {"HL_VK_POISON", "205"}},
         MOCK_AFTER_POLLS,
         2,
         warm,
         small_round_trip},
        {"QuietCaller", "plain", {}, MOCK_AFTER_POLLS, 2, warm, quiet_caller},
    };
}

}  // namespace fault

#endif
