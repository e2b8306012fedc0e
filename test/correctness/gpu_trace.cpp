// Runs small pipelines under many kinds of trace, for test_trace.py to look at.
//
//     correctness_gpu_trace cases FOLDER    each case in a context of its own: FOLDER/CASE.json, what the counting
//     layer
//                                           counted in FOLDER/CASE.calls, and "case CASE" on the output before it
//     correctness_gpu_trace endless         runs until it is killed; HL_VK_TRACE names the file
//     correctness_gpu_trace once            ends by itself, without a release
//
// Results are checked here, traces there. The layer is put in by the Vulkan loader (VK_INSTANCE_LAYERS with an empty
// HL_VK_LAYERS), so that the runtime does not know of it and asks for VK_EXT_debug_utils only because of the trace.
//
// Stock: stops with an exception (there is no such function as halide_vulkan_set_trace_file).

#include "support.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

Target target() { return gpu_target(); }

// name0(x) = p(x) * 3 + 1, name1(x) = name0(x) * 3 + 1, ...: a kernel for each stage.
Callable pipeline(const std::string &name, int stages = 1) {
    Var x("x"), xi("xi");
    ImageParam p(UInt(32), 1, "p");
    std::vector<Func> f;
    for (int i = 0; i < stages; i++) {
        f.emplace_back(name + std::to_string(i));
        f[i](x) = (i ? f[i - 1](x) : p(x)) * 3 + 1;
        f[i].compute_root().gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    }
    return f.back().compile_to_callable({p}, target());
}

void require(bool good, const char *what) {
    if (good) return;
    std::printf("FAILED: %s\n", what);
    std::fflush(stdout);
    std::_Exit(1);
}

// Uploads, launches, downloads, checks.
void run(const Callable &kernel, int n, int stages = 1, int times = 1) {
    Words in(n), out(n);
    for (int time = 0; time < times; time++) {
        fill(in, [](const int *p) { return p[0]; });
        require(kernel(in, out) == 0, "a pipeline");
        require(out.copy_to_host() == 0, "a download");
        const bool right = matches(out, [&](const int *p) {
            uint32_t value = p[0];
            for (int i = 0; i < stages; i++) value = value * 3 + 1;
            return value;
        });
        require(right, "the result");
    }
}

void release() { vulkan_interface()->device_release(nullptr, vulkan_interface()); }

struct Settings {
    std::vector<std::pair<const char *, const char *>> environment;
    std::vector<std::pair<const char *, uint64_t>> limits;
    std::string file;  // instead of CASE.json; "-": no trace
};

std::string folder;
std::string only;  // the one case that is wanted; empty: all

template<typename Body>
void run_case(const std::string &name, const Settings &settings, Body &&body) {
    if (!only.empty() && only != name) return;
    std::printf("case %s\n", name.c_str());
    std::fflush(stdout);
    for (auto [key, value] : settings.environment) setenv(key, value, 1);
    for (auto [key, value] : settings.limits) require(hv_layer_limit(key, value), key);
    const std::string file = settings.file == "-"    ? std::string()
                             : settings.file.empty() ? folder + "/" + name + ".json"
                                                     : settings.file;
    runtime_call<void(const char *)>("halide_vulkan_set_trace_file")(file.c_str());
    hv_layer_reset();
    body();
    FILE *calls = std::fopen((folder + "/" + name + ".calls").c_str(), "w");
    hv_layer_print(calls);
    for (const char *type :
         {"VkDevice", "VkBuffer", "VkDeviceMemory", "VkFence", "VkQueryPool", "VkPipelineCache", "VkPipeline",
          "VkPipelineLayout", "VkDescriptorSetLayout", "VkDescriptorPool", "VkCommandPool", "VkCommandBuffer"}) {
        std::fprintf(calls, "unnamed.%s %lld\n", type, (long long)hv_layer_unnamed(type));
    }
    for (const char *part : {"Halide: _kernel_alpha0", "Halide: staging", "Halide: device", "Halide: queue"})
        std::fprintf(calls, "names.%s %llu\n", part + 8, (unsigned long long)hv_layer_names(part));
    for (const char *part : {"_kernel_alpha0", "_kernel_alpha1", "_kernel_be", "upload", "download"})
        std::fprintf(calls, "labels.%s %llu\n", part, (unsigned long long)hv_layer_labels(part));
    std::fclose(calls);
    release();
    std::fflush(stdout);
    for (auto [key, value] : settings.environment) unsetenv(key);
    hv_layer_clear();
}

void cases() {
    const Callable alpha = pipeline("alpha", 2), beta = pipeline("be\"ta");
    const auto work = [&] {
        run(alpha, 5000, 2, 20);
        run(beta, 70000);
    };
    const std::pair<const char *, const char *> by_count = {"HL_VK_FLUSH", "count"}, staged = {"HL_VK_DIRECT", "0"};

    run_case("plain", {}, work);
    run_case("off", {{by_count, staged}, {}, "-"}, work);
    run_case("on", {{by_count, staged}, {}, ""}, work);
    run_case("asked", {{by_count, staged}, {}, "-"}, [&] {
        const auto set = runtime_call<void(const char *)>("halide_vulkan_set_extension_names");
        set("VK_EXT_debug_utils");
        work();
        set("");
    });
    run_case("poison", {{{"HL_VK_POISON", "205"}}, {}, ""}, work);
    run_case("no_timestamps", {{}, {{"timestampValidBits", 0}}, ""}, work);
    run_case("few_bits", {{}, {{"timestampValidBits", 36}}, ""}, work);
    run_case("no_calibration", {{}, {{"extension:VK_EXT_calibrated_timestamps", 0}}, ""}, work);

    // Kernels that do not depend on each other.
    std::vector<Callable> independent;
    for (int i = 0; i < 4; i++) independent.push_back(pipeline("k" + std::to_string(i) + "_"));
    run_case("serial", {{by_count, staged, {"HL_VK_TRACE_SERIAL", "1"}}, {}, ""}, [&] {
        std::vector<Words> buffers;
        for (int i = 0; i < 8; i++) buffers.emplace_back(50000);
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < 4; i++) {
                buffers[i].set_host_dirty();
                require(independent[i](buffers[i], buffers[4 + i]) == 0, "a pipeline");
            }
        }
        require(buffers[7].device_sync() == 0, "a sync");
    });

    // The driver refuses what the trace needs, and nothing else.
    for (const char *call : {"vkCreateQueryPool", "vkGetQueryPoolResults", "vkGetCalibratedTimestampsEXT",
                             "vkSetDebugUtilsObjectNameEXT"}) {
        run_case(std::string("refused_") + call, {}, [&] {
            require(hv_layer_fail(call, -1, -1), call);
            work();
            require(hv_layer_failed() > 0, "the call was not made");
            release();
            require(hv_layer_live("VkQueryPool") == 0, "query pools are left");
        });
    }

    run_case("limit", {{{"HL_VK_TRACE_MB", "1"}}, {}, ""}, [&] { run(beta, 10, 1, 1200); });
    run_case("no_folder", {{}, {}, "/no/such/folder/t.json"}, work);
    run_case("is_folder", {{}, {}, "/"}, work);
    // Cut, it would be the path of another file.
    std::string deep = folder;
    while (deep.size() < 1100) deep += "/.";
    run_case("is_long", {{}, {}, deep + "/is_long.json"}, work);
    require(mkfifo((folder + "/is_pipe").c_str(), 0600) == 0, "a FIFO");
    run_case("is_pipe", {{}, {}, folder + "/is_pipe"}, work);  // nobody reads it
    run_case("number", {{}, {}, folder + "/number-%p.json"}, [&] { run(beta, 10); });
    run_case("rounds", {}, [&] {
        for (int i = 0; i < 3; i++) {
            release();
            run(beta, 1000, 1, i + 1);
        }
    });
    run_case("fork", {}, [&] {
        run(beta, 10);
        const pid_t child = fork();
        if (child == 0) std::exit(0);
        int status = -1;
        waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child");
        run(beta, 10);
    });
    run_case("threads", {}, [&] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&, i] {
                std::printf("thread %ld\n", (long)syscall(SYS_gettid));
                run(independent[i], 100, 1, 25);
            });
        }
        for (std::thread &thread : threads) thread.join();
    });
}

}  // namespace

int main(int argc, char **argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "cases" && argc > 2) {
        folder = argv[2];
        if (argc > 3) only = argv[3];
        cases();
        std::printf("process %d\n", (int)getpid());
        return 0;
    }
    if (mode == "endless") {
        const Callable kernel = pipeline("f");
        for (;;) run(kernel, 3000);
    }
    if (mode == "once") {
        // Ends without a release: the exit handler has the rest to write.
        run(pipeline("f", 2), 3000, 2, 50);
        return 0;
    }
    std::fprintf(stderr, "see the head of gpu_trace.cpp\n");
    return 2;
}
