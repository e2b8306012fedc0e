// No Vulkan loader, or another one, for just-in-time programs: an error with one clear message, the same again, a probe
// that says no, and no crash.
//
// Each test belongs to one CTest entry that sets HL_VK_LOADER_LIB (see CMakeLists.txt), which is read once. That no
// library is installed is played by a dlopen of this program's own, which libHalide and the runtime find before the C
// library's. The ahead-of-time route is in aot/gpu_aot_loader*.cpp.
//
// Stock: HL_VK_LOADER_LIB is not known to it, so a bad path goes unnoticed.

#include "support.h"

#include <dlfcn.h>

using namespace Halide;
using namespace vulkan_test;

namespace {

bool hide_loader = false;
int hidden = 0;

}  // namespace

extern "C" void *dlopen(const char *name, int flags) noexcept {
    static auto *real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (hide_loader && name && (std::strstr(name, "libvulkan") || std::strstr(name, "libMoltenVK"))) {
        hidden++;
        return real("/no/such/library.so", flags);  // so that dlerror has something to say
    }
    return real(name, flags);
}

namespace {

class GpuLoader : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    Func f{"f"};

    void SetUp() override {
        f(x) = x * 3;
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    }
    // A direct realize, and what it threw or said.
    std::string realize() {
        Context context;
        Buffer<int> out(100);
        try {
            f.realize(context.jit(), out, gpu_target());
            if (!context.errors.empty()) return context.all();
            out.copy_to_host();
        } catch (const Error &error) {
            return error.what();
        }
        EXPECT_TRUE(matches(out, [](const int *p) { return p[0] * 3; }));
        return "";
    }
    // "yes", "no", or what it threw.
    static std::string probe() {
        try {
            return host_supports_target_device(gpu_target()) ? "yes" : "no";
        } catch (const Error &error) {
            return error.what();
        }
    }
    void nothing_works(const std::string &part, const std::string &answer = "no") {
        for (int time = 0; time < 2; time++) {
            const std::string answered = probe();
            EXPECT_NE(answered.find(answer), std::string::npos) << answered;
            const std::string said = realize();
            EXPECT_NE(said.find(part), std::string::npos) << said;
        }
    }
};

// No file of the name can be opened. libHalide itself looks before any runtime does, and throws.
TEST_F(GpuLoader, Missing) {
    hide_loader = true;
    nothing_works("ibvulkan", "ibvulkan");
    EXPECT_GT(hidden, 0) << "nobody looked for the loader, so nothing is tested";
}

// HL_VK_LOADER_LIB=/no/such/libvulkan.so, and a file that is no library.
TEST_F(GpuLoader, BadPath) {
    nothing_works("HL_VK_LOADER_LIB names '/no/such/libvulkan.so': cannot open shared object file: No such file");
}
TEST_F(GpuLoader, NoLibrary) { nothing_works("CMakeLists.txt': invalid ELF header"); }
// A path that is too long for a message, and one of a library that is no Vulkan loader.
TEST_F(GpuLoader, LongPath) { nothing_works("aaa...': cannot open shared object file: File name too long"); }
TEST_F(GpuLoader, NoLoader) { nothing_works("libm.so.6': it is a library, but has no vkGetInstanceProcAddr"); }

// HL_VK_LOADER_LIB is the absolute path of the loader.
TEST_F(GpuLoader, GoodPath) {
    for (int time = 0; time < 2; time++) {
        EXPECT_EQ(probe(), "yes");
        EXPECT_EQ(realize(), "");
    }
}

}  // namespace
