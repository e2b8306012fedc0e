// performance_gpu_dispatch_overhead: what one GPU operation of Halide costs, for any GPU target, from one program.
//
//   performance_gpu_dispatch_overhead [--rows REGEX] [--json FILE] [--quick] [--long] [--list]
//
// The target is HL_JIT_TARGET or HL_TARGET (Vulkan if neither is set), the Vulkan runtime is whichever libHalide was
// bound to, so stock, ours and CUDA are measured by the same machine code. See bench_harness.h for how.
// Exit code: 0 all results right, 1 a wrong result or a failed call, 2 a wrong command line.

#include <Halide.h>
#include <cstring>
#include <thread>

#include "bench_device.h"
#include "bench_harness.h"
#include "bench_pipelines.h"
#include "bench_target.h"

using namespace bench;

namespace {

constexpr int kThreads = 4;
constexpr int kBigElements = 12 * 1000 * 1000;  // 48,000,000 bytes: a 24 megapixel picture of 16 bits

void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s failed with code %d\n", what, code);
    exit(1);
}

// The device as the rows use it: Halide's own device interface, called as generated code calls it.
struct Device {
    const halide_device_interface_t *interface;

    explicit Device(const Target &target)
        : interface(Halide::get_device_interface_for_device_api(Halide::DeviceAPI::Default_GPU, target, "benchmark")) {}

    template<typename T>
    void sync(Buffer<T> &b) const {
        must(interface->device_sync(nullptr, b.raw_buffer()), "device_sync");
    }
    template<typename T>
    void upload(Buffer<T> &b) const {
        b.set_host_dirty();
        must(interface->copy_to_device(nullptr, b.raw_buffer(), interface), "copy_to_device");
    }
    template<typename T>
    void download(Buffer<T> &b) const {
        b.set_host_dirty(false);
        b.set_device_dirty();
        must(interface->copy_to_host(nullptr, b.raw_buffer()), "copy_to_host");
    }
    void allocate(halide_buffer_t *b) const { must(interface->device_malloc(nullptr, b, interface), "device_malloc"); }
    void free(halide_buffer_t *b) const { must(interface->device_free(nullptr, b), "device_free"); }
    template<typename T>
    void copy(Buffer<T> &from, Buffer<T> &to) const {
        must(interface->buffer_copy(nullptr, from.raw_buffer(), interface, to.raw_buffer()), "buffer_copy");
    }
};

// Reads back what the device holds, whatever the host's copy says, and compares it with want(x, y, c).
template<typename Want>
bool device_holds(const Device &device, Buffer<float> &image, Want want) {
    image.set_device_dirty(false);
    image.fill(-1.0f);
    device.download(image);
    for (int c = 0; c < kChannels; c++) {
        for (int y = 0; y < kHeight; y++) {
            for (int x = 0; x < kWidth; x++) {
                if (image(x, y, c) == want(x, y, c)) continue;
                fprintf(stderr, "at (%d, %d, %d): %g instead of %g\n", x, y, c, image(x, y, c), want(x, y, c));
                return false;
            }
        }
    }
    return true;
}

// Everything the rows share. Made once; the rows' closures refer to it.
struct Bench {
    Target target;
    Device device;
    Plain plain;
    Shared shared;
    Dynamic dynamic;
    Chain chain;
    Buffer<float> in = small_image(), out = small_image(), transfer = small_image();
    std::vector<Buffer<float>> many, per_thread;
    std::vector<Buffer<uint8_t>> sizes;
    Buffer<float> big_in, big_out;

    explicit Bench(const Target &target)
        : target(target), device(target), plain(target), shared(target), dynamic(target), chain(target) {
        fill_input(in);
        fill_input(transfer);
        device.upload(in);
        device.upload(transfer);
        must(plain.call(in, 0.0f, out), "launch");
        for (int i = 0; i < 16; i++) many.push_back(small_image());
        for (int i = 0; i < kThreads; i++) per_thread.push_back(small_image());
        for (int i = 0; i < 8; i++) sizes.emplace_back(nullptr, 65536 << i);
    }

    // Made on first use: most of the memory the program takes, and not every run wants these rows.
    void make_big() {
        if (big_in.defined()) return;
        big_in = Buffer<float>(kBigElements);
        big_out = Buffer<float>(kBigElements);
        float *data = big_in.data();
        for (int i = 0; i < kBigElements; i++) data[i] = float(i % 65521);
        big_out.fill(0.0f);
        device.upload(big_in);
        device.upload(big_out);
        device.sync(big_in);
    }

    bool big_is_right(Buffer<float> &image, float first) {
        float *data = image.data();
        memset(data, 0xff, image.size_in_bytes());
        device.download(image);
        if (data[0] != first) return false;
        for (int i = 1; i < kBigElements; i++) {
            if (data[i] != float(i % 65521)) return false;
        }
        return true;
    }
};

using Expected = float (*)(int, int, int, float);

std::function<bool(int)> holds(Bench &b, Buffer<float> &image, Expected expected) {
    return [&b, &image, expected](int n) {
        float offset = offset_of(n - 1);
        return device_holds(b.device, image, [&](int x, int y, int c) { return expected(x, y, c, offset); });
    };
}

// The rows about kernels.
void add_launch_rows(Bench &b, std::vector<Row> &rows) {
    auto sync = [&b] { b.device.sync(b.out); };
    auto plain = [&b](int i) { must(b.plain.call(b.in, offset_of(i), b.out), "launch"); };
    auto dynamic = [&b](int i, int tile) { must(b.dynamic.call(b.in, offset_of(i), tile, b.out), "launch"); };

    rows.push_back({"launch", "launch, back to back", 1000,
                    [=](int n) {
                        for (int i = 0; i < n; i++) plain(i);
                    },
                    sync, holds(b, b.out, Plain::expected)});
    rows.push_back({"launch_sync", "launch + device_sync", 500,
                    [=](int n) {
                        for (int i = 0; i < n; i++) plain(i), sync();
                    },
                    sync, holds(b, b.out, Plain::expected)});
    rows.push_back({"launch_shared", "launch with shared memory, back to back", 1000,
                    [&b](int n) {
                        for (int i = 0; i < n; i++) must(b.shared.call(b.in, offset_of(i), b.out), "launch");
                    },
                    sync, holds(b, b.out, Shared::expected)});
    rows.push_back({"launch_dynamic", "launch, dynamic workgroup size, same each time", 500,
                    [=](int n) {
                        for (int i = 0; i < n; i++) dynamic(i, 16);
                    },
                    sync, holds(b, b.out, Plain::expected)});
    rows.push_back({"launch_alternating", "launch, dynamic workgroup size, alternating two", 500,
                    [=](int n) {
                        for (int i = 0; i < n; i++) dynamic(i, i % 2 ? 8 : 16);
                    },
                    sync, holds(b, b.out, Plain::expected)});
    rows.push_back({"launch_independent", "launch, back to back, 16 output buffers in turn", 1000,
                    [&b](int n) {
                        for (int i = 0; i < n; i++) must(b.plain.call(b.in, offset_of(i), b.many[i % 16]), "launch");
                    },
                    [&b] { b.device.sync(b.many[0]); },
                    [&b](int n) {
                        bool right = true;
                        for (int i = n - std::min(n, 16); i < n; i++) {
                            right = right && device_holds(b.device, b.many[i % 16], [&](int x, int y, int c) {
                                        return Plain::expected(x, y, c, offset_of(i));
                                    });
                        }
                        return right;
                    }});
    rows.push_back({"chain4", "4 dependent kernels in one pipeline", 200,
                    [&b](int n) {
                        for (int i = 0; i < n; i++) must(b.chain.call(b.in, offset_of(i), b.out), "launch");
                    },
                    sync, holds(b, b.out, Chain::expected)});
    rows.push_back({"idle_sync", "idle device_sync", 2000,
                    [=](int n) {
                        for (int i = 0; i < n; i++) sync();
                    },
                    sync, [](int) { return true; }});
}

// The rows about copies of 64 KiB. The first element is the number of the operation, so a lost one is seen.
void add_copy_rows(Bench &b, std::vector<Row> &rows) {
    auto sync = [&b] { b.device.sync(b.transfer); };
    auto upload = [&b](int i) {
        b.transfer(0, 0, 0) = offset_of(i);
        b.device.upload(b.transfer);
    };
    auto launch = [&b, upload](int i) {
        b.transfer(0, 0, 0) = offset_of(i);
        b.transfer.set_host_dirty();
        must(b.plain.call(b.transfer, offset_of(i), b.out), "launch");
    };
    auto uploaded = [](int x, int y, int c, float offset) {
        return x == 0 && y == 0 && c == 0 ? offset : input_at(x, y, c);
    };
    auto launched = [](int x, int y, int c, float offset) {
        return x == 0 && y == 0 && c == 0 ? 3 * offset : Plain::expected(x, y, c, offset);
    };

    rows.push_back({"upload_64k", "upload 64 KiB", 2000,
                    [=](int n) {
                        for (int i = 0; i < n; i++) upload(i);
                    },
                    sync, holds(b, b.transfer, uploaded)});
    rows.push_back({"upload_64k_sync", "upload 64 KiB + device_sync", 500,
                    [=](int n) {
                        for (int i = 0; i < n; i++) upload(i), sync();
                    },
                    sync, holds(b, b.transfer, uploaded)});
    rows.push_back({"upload_launch", "upload 64 KiB + launch", 500,
                    [=](int n) {
                        for (int i = 0; i < n; i++) launch(i);
                    },
                    sync, holds(b, b.out, launched)});
    rows.push_back({"upload_launch_download", "upload 64 KiB + launch + download 64 KiB", 200,
                    [&b, launch](int n) {
                        for (int i = 0; i < n; i++) {
                            launch(i);
                            must(b.out.copy_to_host(), "copy_to_host");
                            if (b.out(0, 0, 0) == 3 * offset_of(i)) continue;
                            fprintf(stderr, "round trip %d brought %g back\n", i, b.out(0, 0, 0));
                            exit(1);
                        }
                    },
                    sync, holds(b, b.out, launched)});
    rows.push_back({"download_64k", "download 64 KiB", 200,
                    [&b](int n) {
                        for (int i = 0; i < n; i++) b.device.download(b.in);
                    },
                    sync, [&b](int) { return device_holds(b.device, b.in, input_at); }});
}

// After the loop the memory must still be there to be had, all sizes at once and each usable.
bool allocations_work(Bench &b, std::vector<Buffer<uint8_t>> &buffers) {
    for (auto &buffer : buffers) b.device.allocate(buffer.raw_buffer());
    bool right = true;
    for (auto &buffer : buffers) {
        Buffer<uint8_t> host(buffer.dim(0).extent());
        host.fill(uint8_t(37 + buffer.dim(0).extent() / 65536));
        host.set_host_dirty();
        must(b.device.interface->buffer_copy(nullptr, host.raw_buffer(), b.device.interface, buffer.raw_buffer()),
             "buffer_copy to the device");
    }
    for (auto &buffer : buffers) {
        Buffer<uint8_t> host(buffer.dim(0).extent());
        host.fill(0);
        host.set_host_dirty(false);
        buffer.set_device_dirty();
        must(b.device.interface->buffer_copy(nullptr, buffer.raw_buffer(), nullptr, host.raw_buffer()),
             "buffer_copy to the host");
        uint8_t want = uint8_t(37 + buffer.dim(0).extent() / 65536);
        host.for_each_value([&](uint8_t value) { right = right && value == want; });
        b.device.free(buffer.raw_buffer());
    }
    return right;
}

void add_memory_rows(Bench &b, std::vector<Row> &rows) {
    auto sync = [&b] { b.device.sync(b.out); };
    auto check = [&b](int) { return allocations_work(b, b.sizes); };
    rows.push_back({"malloc_free", "malloc + free 64 KiB", 1000,
                    [&b](int n) {
                        halide_buffer_t *raw = b.sizes[0].raw_buffer();
                        for (int i = 0; i < n; i++) b.device.allocate(raw), b.device.free(raw);
                    },
                    sync, check});
    rows.push_back({"malloc_free_8", "malloc + free, 8 sizes 64 KiB..8 MiB", 200,
                    [&b](int n) {
                        for (int i = 0; i < n; i++) {
                            for (auto &size : b.sizes) b.device.allocate(size.raw_buffer());
                            for (auto &size : b.sizes) b.device.free(size.raw_buffer());
                        }
                    },
                    sync, check});
}

void add_big_rows(Bench &b, std::vector<Row> &rows) {
    auto sync = [&b] { b.device.sync(b.big_in); };
    rows.push_back({"upload_48m", "upload 48 MB", 8,
                    [&b](int n) {
                        b.make_big();
                        for (int i = 0; i < n; i++) {
                            b.big_in(0) = offset_of(i);
                            b.device.upload(b.big_in);
                        }
                    },
                    sync, [&b](int n) { return b.big_is_right(b.big_in, offset_of(n - 1)); }});
    rows.push_back({"download_48m", "download 48 MB", 2,
                    [&b](int n) {
                        b.make_big();
                        for (int i = 0; i < n; i++) b.device.download(b.big_in);
                    },
                    sync, [&b](int) { return b.big_is_right(b.big_in, b.big_in(0)); }});
    rows.push_back({"device_copy_48m", "device copy 48 MB", 50,
                    [&b](int n) {
                        b.make_big();
                        for (int i = 0; i < n; i++) {
                            b.big_in.set_device_dirty();
                            b.device.copy(b.big_in, b.big_out);
                        }
                    },
                    sync,
                    [&b](int) {
                        b.device.download(b.big_in);
                        return b.big_is_right(b.big_out, b.big_in(0));
                    }});
}

void add_thread_row(Bench &b, std::vector<Row> &rows) {
    Row row;
    row.key = "launch_sync_4_threads";
    row.title = "launch + sync from 4 threads, per operation";
    row.count = 2000;
    row.run = [&b](int n) {
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; t++) {
            threads.emplace_back([&b, t, n] {
                for (int i = 0; i < n / kThreads; i++) {
                    must(b.plain.call(b.in, offset_of(i + t), b.per_thread[t]), "launch");
                    b.device.sync(b.per_thread[t]);
                }
            });
        }
        for (auto &thread : threads) thread.join();
    };
    row.sync = [&b] { b.device.sync(b.out); };
    row.check = [&b](int n) {
        bool right = true;
        for (int t = 0; t < kThreads; t++) {
            right = right && device_holds(b.device, b.per_thread[t], [&](int x, int y, int c) {
                        return Plain::expected(x, y, c, offset_of(n / kThreads - 1 + t));
                    });
        }
        return right;
    };
    row.cpu_clock = CLOCK_PROCESS_CPUTIME_ID;
    rows.push_back(row);
}

// Waits for one kernel of about two seconds and tells how much processor time that took.
bool wait_for_long_kernel(Bench &b, Facts &facts) {
    Busy busy(b.target);
    Buffer<uint32_t> out(64);
    auto run = [&](int outer) {
        double start = seconds(CLOCK_MONOTONIC);
        must(busy.call(outer, 0u, out), "launch");
        b.device.sync(out);
        return seconds(CLOCK_MONOTONIC) - start;
    };
    int outer = 16;
    run(outer);
    double took = run(outer);
    while (took < 0.1 && outer < (1 << 20)) took = run(outer *= 2);
    if (took < 0.1) {
        fprintf(stderr, "this device does not run long loops to their end (llvmpipe is known to cut them short)\n");
        return false;
    }
    outer = int(outer * 2.0 / took);

    double process = seconds(CLOCK_PROCESS_CPUTIME_ID), caller = seconds(CLOCK_THREAD_CPUTIME_ID);
    double wall = run(outer);
    process = seconds(CLOCK_PROCESS_CPUTIME_ID) - process;
    caller = seconds(CLOCK_THREAD_CPUTIME_ID) - caller;
    must(out.copy_to_host(), "copy_to_host");
    bool right = true;
    for (int x = 0; x < out.width(); x++) {
        right = right && out(x) == Busy::expected(uint32_t(x), uint64_t(outer) * Busy::kInner);
    }
    auto text = [](double value) {
        char buffer[32];
        snprintf(buffer, sizeof(buffer), "%.3f", value);
        return std::string(buffer);
    };
    facts.emplace_back("long_wait_seconds", text(wall));
    facts.emplace_back("long_wait_caller_cpu_percent", text(100 * caller / wall));
    facts.emplace_back("long_wait_process_cpu_percent", text(100 * process / wall));
    printf("waiting %.2f s for one kernel took %.2f %% of a processor in the caller, %.2f %% in the process%s\n", wall,
           100 * caller / wall, 100 * process / wall, right ? "" : "   WRONG RESULT");
    return right;
}

Options parse(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; i++) {
        std::string argument = argv[i];
        bool has_value = i + 1 < argc;
        if (argument == "--quick")
            options.quick = true;
        else if (argument == "--long")
            options.wait_for_long = true;
        else if (argument == "--list")
            options.list = true;
        else if (argument == "--json" && has_value)
            options.json = argv[++i];
        else if (argument == "--rows" && has_value)
            options.rows = argv[++i];
        else {
            fprintf(stderr, "usage: %s [--rows REGEX] [--json FILE] [--quick] [--long] [--list]\n", argv[0]);
            exit(2);
        }
    }
    return options;
}

}  // namespace

int main(int argc, char **argv) {
    Options options = parse(argc, argv);
    Target target = target_from_environment();
    bool vulkan = target.has_feature(Target::Vulkan);
    Facts facts = {
        {"target", target.to_string()},
        {"halide", std::to_string(HALIDE_VERSION_MAJOR) + "." + std::to_string(HALIDE_VERSION_MINOR) + "." +
                       std::to_string(HALIDE_VERSION_PATCH)},
        {"device", vulkan ? vulkan_device_names() : cuda_device_names()},
        {"runtime", vulkan ? vulkan_runtime_file() : "libHalide's CUDA runtime"},
    };
    // CUDA tells no driver's version; NVIDIA has one driver for both, which the columns of Vulkan name.
    if (vulkan) facts.push_back({"driver", vulkan_driver_names()});
    for (const auto &[name, value] : facts) printf("%-8s %s\n", name.c_str(), value.c_str());

    Bench b(target);
    std::vector<Row> rows;
    add_launch_rows(b, rows);
    add_copy_rows(b, rows);
    add_memory_rows(b, rows);
    add_big_rows(b, rows);
    add_thread_row(b, rows);

    bool right = true;
    std::vector<Result> results;
    print_head();
    for (const Row &row : rows) {
        if (!options.wants(row.key)) continue;
        if (options.list) {
            printf("%-28s %s\n", row.key.c_str(), row.title.c_str());
            continue;
        }
        results.push_back(measure(row, options));
        print_row(results.back());
        right = right && results.back().right;
    }
    if (options.wait_for_long) right = wait_for_long_kernel(b, facts) && right;
    if (!options.json.empty()) right = write_json(options.json, facts, results) && right;
    printf("%s\n", right ? "all results right" : "WRONG RESULTS");
    return right ? 0 : 1;
}
