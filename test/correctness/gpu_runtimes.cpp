// Several runtimes in one process: just-in-time pipelines in the release and the debug flavour, and a library that was
// compiled ahead of time and has a runtime of its own.
//
// Each has its own code, context and device, and none may take another's symbols, handles or place in the registry.
// The library comes and goes while the other two stay. A test is a CTest entry of its own (CMakeLists.txt): the order
// in which the three end is another in each, and a crash at exit is a failed entry.
//
// HV_AOT_LIBRARY names the library (aot/gpu_aot_library.cpp).

#include "support.h"

#include "../../src/runtime/halide_vulkan_stats.h"

#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

const Target debug_target = gpu_target({Target::Debug});

Callable compile(const Target &target) {
    Var x("x"), xi("xi");
    ImageParam input(UInt(32), 1, "input");
    Func f("f");
    f(x) = scramble(input(x)) + cast<uint32_t>(x);
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    return f.compile_to_callable({input}, target);
}

void use(Callable &kernel, uint32_t salt) {
    Context context;  // takes what the debug flavour prints
    Words a(1000), b(1000);
    fill(a, [&](const int *p) { return p[0] + salt; });
    ASSERT_OK(kernel(context.jit(), a, b));
    ASSERT_OK(b.copy_to_host(context.raw()));
    EXPECT_TRUE(matches(b, [&](const int *p) { return scramble(p[0] + salt) + p[0]; }));
    a.device_free(context.raw());
    b.device_free(context.raw());
    EXPECT_TRUE(context.errors.empty()) << context.all();
}

// Work under way when the process ends.
void leave_in_flight(Callable &kernel, Context &context, Words &a, Words &b) {
    a.fill(7);
    a.set_host_dirty();
    for (int i = 0; i < 20; i++) ASSERT_OK(kernel(context.jit(), a, b));
}

class Library {
public:
    explicit Library(int scope = RTLD_LOCAL) {
        const char *path = std::getenv("HV_AOT_LIBRARY");
        handle = path ? dlopen(path, RTLD_NOW | scope) : nullptr;
        EXPECT_NE(handle, nullptr) << (path ? dlerror() : "HV_AOT_LIBRARY is not set");
    }
    void use(int salt) const { EXPECT_EQ(((int (*)(int, int))find("hv_library_use"))(1000 + salt, salt), 0); }
    void leave_in_flight() const { EXPECT_EQ(((int (*)())find("hv_library_leave_in_flight"))(), 0); }
    void close() { EXPECT_EQ(dlclose(handle), 0); }
    void *find(const char *name) const { return handle ? dlsym(handle, name) : nullptr; }

private:
    void *handle;
};

// What the registry of libHalideVulkan.so leads to; null when to no runtime.
void *registered() {
    struct Registry {
        uint32_t version, count;
        void *entries[16];
    };
    const auto *registry = (const Registry *)dlsym(RTLD_DEFAULT, "halide_vulkan_registry");
    return registry && registry->version ? registry->entries[0] : nullptr;
}

uint64_t submissions_by_registry() {
    halide_vulkan_stats stats = {};
    const auto get = (int (*)(void *, halide_vulkan_stats *, uint64_t))registered();
    Context context;
    if (!get) return 0;
    EXPECT_EQ(get(context.raw(), &stats, sizeof(stats)), 0) << context.all();
    return stats.submissions;
}

// All three in turn, and from three threads at once.
void use_all(Callable &release, Callable &debug, const Library &library) {
    for (int i = 0; i < 3; i++) {
        use(release, i);
        use(debug, i);
        library.use(i);
    }
    std::thread threads[] = {
        std::thread([&] { use(release, 10); }),
        std::thread([&] { use(debug, 11); }),
        std::thread([&] { library.use(12); }),
    };
    for (std::thread &thread : threads) thread.join();
}

TEST(GpuRuntimes, InTurnAndAtOnce) {
    Callable release = compile(gpu_target()), debug = compile(debug_target);
    use_all(release, debug, Library());
}

TEST(GpuRuntimes, LibraryFirst) {
    Library library;
    library.use(1);
    Callable release = compile(gpu_target()), debug = compile(debug_target);
    use_all(release, debug, library);
}

// Its symbols are then found by whoever asks the process, the just-in-time compiler included.
TEST(GpuRuntimes, LibraryInTheGlobalScope) {
    Library library(RTLD_GLOBAL);
    Callable release = compile(gpu_target()), debug = compile(debug_target);
    use_all(release, debug, library);
}

TEST(GpuRuntimes, LibraryComesAndGoes) {
    Callable release = compile(gpu_target()), debug = compile(debug_target);
    for (int i = 0; i < 3; i++) {
        Library library;
        use_all(release, debug, library);
        library.leave_in_flight();
        library.close();
        use(release, 20 + i);
        use(debug, 30 + i);
    }
}

// It leads to the runtime that started last, and back to one that is still there.
TEST(GpuRuntimes, RegistryLeadsToALiveRuntime) {
    Callable release = compile(gpu_target());
    use(release, 1);
    void *const just_in_time = registered();
    ASSERT_NE(just_in_time, nullptr);
    const uint64_t submissions = submissions_by_registry();
    EXPECT_GT(submissions, 0u);
    Library first, second;
    first.use(1);
    EXPECT_EQ(registered(), first.find("halide_vulkan_get_stats"));
    first.close();
    second.close();
    EXPECT_EQ(registered(), just_in_time);
    EXPECT_EQ(submissions_by_registry(), submissions);
    Library again;
    EXPECT_EQ(registered(), again.find("halide_vulkan_get_stats"));
    Callable debug = compile(debug_target);
    use(debug, 2);
    void *const newest = registered();
    EXPECT_NE(newest, just_in_time);
    again.close();
    EXPECT_EQ(registered(), newest);
    release = debug = Callable();
    Internal::JITSharedRuntime::release_all();
    EXPECT_EQ(registered(), nullptr);
}

TEST(GpuRuntimes, ExitWithAllInFlight) {
    static Callable release = compile(gpu_target()), debug = compile(debug_target);
    static Words a(20000), b(20000), c(20000), d(20000);
    static Context context;
    static Library library;
    use_all(release, debug, library);
    leave_in_flight(release, context, a, b);
    leave_in_flight(debug, context, c, d);
    library.leave_in_flight();
}

}  // namespace
