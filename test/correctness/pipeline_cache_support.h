// pipeline_cache_support.h: what the tests of the pipeline cache on disk stand on: kernels, a folder, other processes.
//
// A device that is released and made again stands for a second process. Where the end of a process matters there are
// real ones: before Vulkan is first used, the program compiles its kernels and forks a process that forks further ones
// when asked to. (A process that has used Vulkan must not fork, and one that starts afresh compiles the runtime first.)

#ifndef HALIDE_VULKAN_TEST_PIPELINE_CACHE_SUPPORT_H
#define HALIDE_VULKAN_TEST_PIPELINE_CACHE_SUPPORT_H

#include "support.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

namespace vulkan_test {

using namespace Halide;
namespace fs = std::filesystem;

using Words = Runtime::Buffer<int32_t, 1>;

// halide_vulkan_get_stats; see src/runtime/halide_vulkan_stats.h.
struct Stats {
    uint64_t others[7];
    char device_name[256];
    uint64_t pipelines, pipeline_ns, read_bytes, written_bytes, writes;
    char note[256];
};

// A kernel for each number; no two of them are one pipeline.
inline Callable &kernel_of(int number) {
    static std::map<int, Callable> &known = *new std::map<int, Callable>;
    if (!known.count(number)) {
        Var x("x"), xi("xi");
        ImageParam input(Int(32), 1, "input");
        Func f("f");
        f(x) = input(x) * (number + 3) + number;
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        known[number] = f.compile_to_callable({input}, gpu_target());
    }
    return known[number];
}

class GpuPipelineCache : public ::testing::Test {
protected:
    static constexpr size_t kOurHeader = 128, kDriverHeader = 32;
    size_t entry = 1000;  // bytes of a pipeline in the layer's model
    fs::path folder;
    Context context;

    void SetUp() override {
        release();
        hv_layer_clear();
        model(entry);
        std::string name = (fs::path(::testing::TempDir()) / "halide-cache-XXXXXX").string();
        ASSERT_TRUE(mkdtemp(name.data()));
        folder = name;
        use(folder.string());
        unsetenv("HL_VK_PIPELINE_CACHE_MB");
        refused = hv_layer_cache_refused();
    }
    void TearDown() override {
        release();
        EXPECT_EQ(hv_layer_cache_refused(), refused) << "a driver was given what may crash it";
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        EXPECT_EQ(hv_layer_left(), 0);
        hv_layer_clear();
        fs::remove_all(folder);
    }
    void model(size_t bytes) {
        entry = bytes;
        ASSERT_TRUE(hv_layer_limit("pipelineCache.model", bytes));
    }
    static void use(const std::string &where) { setenv("HL_VK_PIPELINE_CACHE", where.c_str(), 1); }
    static void release() { vulkan_interface()->device_release(nullptr, vulkan_interface()); }

    // Runs the kernels of these numbers, each a pipeline of its own, and checks what they compute.
    void run(const std::vector<int> &kernels) {
        const uint64_t before_found = hv_layer_cache_found(), before_compiled = hv_layer_cache_compiled();
        for (int number : kernels) {
            Words in(100), out(100);
            fill(in, [](const int *p) { return p[0]; });
            ASSERT_EQ(kernel_of(number)(context.jit(), in, out), 0) << context.all();
            ASSERT_EQ(out.copy_to_host(context.raw()), 0) << context.all();
            EXPECT_TRUE(matches(out, [&](const int *p) { return p[0] * (number + 3) + number; }));
        }
        EXPECT_EQ(context.all(), "");
        found = hv_layer_cache_found() - before_found;
        compiled = hv_layer_cache_compiled() - before_compiled;
    }
    uint64_t found = 0, compiled = 0;  // by the last run

    static Stats stats() {
        Stats s = {};
        EXPECT_EQ(runtime_call<int(void *, Stats *, size_t)>("halide_vulkan_get_stats")(nullptr, &s, sizeof(s)), 0);
        return s;
    }
    std::vector<fs::path> files() const {
        std::vector<fs::path> all;
        for (const auto &one : fs::directory_iterator(folder)) all.push_back(one.path());
        return all;
    }
    // The one file of the folder: nothing else may have been left there.
    fs::path file() const {
        const std::vector<fs::path> all = files();
        EXPECT_EQ(all.size(), 1u);
        return all.empty() ? fs::path() : all[0];
    }
    static std::string content(const fs::path &path) {
        std::ifstream stream(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(stream), {});
    }
    static void put(const fs::path &path, const std::string &bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    }
    // While a thread may be writing, there may be a second file.
    bool has_file_of(size_t pipelines) const {
        for (const fs::path &path : files()) {
            std::error_code gone;
            if (path.extension() == ".cache" && fs::file_size(path, gone) == size_of(pipelines)) return true;
        }
        return false;
    }
    size_t size_of(size_t pipelines) const { return kOurHeader + kDriverHeader + pipelines * entry; }
    static std::string initial_data() {
        std::string data(hv_layer_cache_initial(nullptr, 0), 0);
        hv_layer_cache_initial(data.data(), data.size());
        return data;
    }
    // Waits for something that a thread of the runtime does, without calling the runtime.
    template<typename Condition>
    static bool comes(Condition condition) {
        for (int i = 0; i < 3000 && !condition(); i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return condition();
    }

private:
    uint64_t refused = 0;
};

// Runs kernels in processes of their own, all at once; each ends without a release. True if all went well.
class Processes : public ::testing::Environment {
public:
    void SetUp() override {
        for (int number = 1; number <= 6; number++) kernel_of(number);
        ASSERT_EQ(pipe(asked), 0);
        ASSERT_EQ(pipe(answered), 0);
        const pid_t server = fork();
        ASSERT_GE(server, 0);
        if (server == 0) serve();
        close(asked[0]);
        close(answered[1]);
    }
    // "1,2;3" is two processes.
    static bool run(const std::string &kernels) {
        const std::string request = std::string(getenv("HL_VK_PIPELINE_CACHE")) + "\n" + kernels + "\n";
        char answer = 0;
        return ::write(asked[1], request.data(), request.size()) == (ssize_t)request.size() &&
               ::read(answered[0], &answer, 1) == 1 && answer == '+';
    }

private:
    inline static int asked[2], answered[2];

    [[noreturn]] static void serve() {
        close(asked[1]);
        FILE *requests = fdopen(asked[0], "r");
        char folder[4096], kernels[256];
        while (fscanf(requests, "%4095s %255s", folder, kernels) == 2) {
            setenv("HL_VK_PIPELINE_CACHE", folder, 1);
            std::istringstream list(kernels);
            int children = 0, good = 0, status = 0;
            for (std::string one; std::getline(list, one, ';'); children++) {
                if (fork() == 0) be_a_process(one);
            }
            for (int i = 0; i < children; i++) good += wait(&status) > 0 && status == 0;
            if (::write(answered[1], good == children ? "+" : "-", 1) != 1) break;
        }
        _exit(0);
    }
    [[noreturn]] static void be_a_process(const std::string &kernels) {
        hv_layer_limit("pipelineCache.model", 1000);
        bool good = true;
        std::istringstream list(kernels);
        for (std::string item; std::getline(list, item, ',');) {
            const int number = std::stoi(item);
            Words in(100), out(100);
            fill(in, [](const int *p) { return p[0]; });
            good = good && kernel_of(number)(in, out) == 0 && out.copy_to_host() == 0;
            good = good && matches(out, [&](const int *p) { return p[0] * (number + 3) + number; });
        }
        exit(good && hv_layer_instances() > 0 && hv_layer_cache_refused() == 0 ? 0 : 1);
    }
};
inline ::testing::Environment *const processes = ::testing::AddGlobalTestEnvironment(new Processes);

}  // namespace vulkan_test

#endif
