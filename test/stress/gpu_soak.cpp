// stress_gpu_soak: mixed work from several threads for as long as wanted; every result right, memory flat.
//
//   stress_gpu_soak [--seconds N] [--threads N] [--seed N]
//
// Each thread has buffers of its own and, beside each, what its elements must be by now, kept by plain C++. It does a
// random operation after another: launches of four kinds, whole or over crops, from one buffer into another; uploads,
// downloads and copies between them; frees and fresh allocations; syncs. Before an operation that replaces a buffer,
// and at the end, the device's elements are compared with the expected ones often enough that nothing wrong goes
// unseen. The main thread samples the memory (memory_use.h). Exit code: 0 all right, 1 something was wrong, 2 a wrong
// command line. The same seed makes each thread do the same operations.

#include "../correctness/support.h"
#include "memory_use.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

struct Options {
    double seconds = 20;
    int threads = 4;
    uint32_t seed = 1;
};

std::atomic<bool> failed{false};

void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s failed with code %d\n", what, code);
    failed = true;
}

// What all threads launch. Callables may be called by several threads at once.
struct Kernels {
    Callable plain, dynamic, shared, chain;

    Kernels() {
        ImageParam in(UInt(32), 1);
        Param<uint32_t> seed;
        Param<int> width;
        Var x, xo, xi;
        const auto make = [&](Func f, std::vector<Argument> arguments) {
            return f.compile_to_callable(arguments, gpu_target());
        };
        Func one("plain"), two("dynamic"), staged("staged"), three("shared"), middle("middle"), four("chain");
        one(x) = scramble(in(x) + seed);
        one.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        plain = make(one, {in, seed});

        two(x) = scramble(in(x) + seed);
        two.gpu_tile(x, xi, width, TailStrategy::GuardWithIf);
        dynamic = make(two, {in, seed, width});

        staged(x) = in(x) + seed;
        three(x) = scramble(staged(x));
        three.gpu_tile(x, xo, xi, 32, TailStrategy::GuardWithIf);
        staged.compute_at(three, xo).store_in(MemoryType::GPUShared).gpu_threads(x);
        shared = make(three, {in, seed});

        middle(x) = in(x) + seed;
        four(x) = scramble(middle(x));
        middle.compute_root().gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        four.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        chain = make(four, {in, seed});
    }

    // Each computes scramble(in + seed).
    int launch(uint32_t kind, Words &in, uint32_t seed, int width, Words &out) {
        switch (kind) {
        case 0: return dynamic(in, seed, width, out);
        case 1: return shared(in, seed, out);
        case 2: return chain(in, seed, out);
        default: return plain(in, seed, out);
        }
    }
};

class Worker {
public:
    Worker(Kernels &kernels, uint32_t seed) : kernels(kernels), random(seed) {
        for (int size : {1, 100, 4096, 4096, 65536, 65536, 524288}) {
            Item item = {Words(size), std::vector<uint32_t>(size)};
            refill(item);
            items.push_back(std::move(item));
        }
    }

    // On a CPU device, memory is resident once it was touched. This goes through all of the staging buffers and through
    // all places that the large items can take, so that no sample is of memory touched for the first time by chance.
    void warm_up() {
        for (int i = 0; i < 64; i++) {
            refill(items.back());
            launch(items.back(), items[i % (items.size() - 1)]);
            if (i % 4 == 0) move_to_fresh_memory(items.back());
        }
    }

    void step() {
        Item &a = pick();
        switch (random() % 10) {
        case 0: return refill(a);
        case 1: return check(a);
        case 2: return move_to_fresh_memory(a);
        case 3: return must(a.words.device_sync(), "device_sync");
        case 4: return copy(a, pick());
        default: return launch(a, pick());
        }
    }

    void check_all() {
        for (Item &item : items) check(item);
    }

    uint64_t checks = 0, operations = 0;

private:
    struct Item {
        Words words;
        std::vector<uint32_t> expected;
    };

    Kernels &kernels;
    std::mt19937 random;
    std::vector<Item> items;

    // The largest one seldom: it takes longer than all others together.
    Item &pick() { return items[random() % (random() % 16 ? items.size() - 1 : items.size())]; }

    void refill(Item &item) {
        const uint32_t seed = random();
        const int size = (int)item.expected.size();
        for (int i = 0; i < size; i++) item.words.data()[i] = item.expected[i] = seed + 7 * i;
        item.words.set_device_dirty(false);
        item.words.set_host_dirty();
    }

    void check(Item &item) {
        must(item.words.copy_to_host(), "copy_to_host");
        checks++;
        if (std::memcmp(item.words.data(), item.expected.data(), item.expected.size() * 4) == 0) return;
        for (size_t i = 0; i < item.expected.size(); i++) {
            if (item.words.data()[i] == item.expected[i]) continue;
            fprintf(stderr, "element %zu of %zu is %u instead of %u\n", i, item.expected.size(), item.words.data()[i],
                    item.expected[i]);
            break;
        }
        failed = true;
    }

    void move_to_fresh_memory(Item &item) {
        check(item);
        must(item.words.device_free(), "device_free");
        item.words.set_host_dirty();
    }

    // The same random stretch of both.
    void stretch(Item &a, Item &b, int *begin, int *size) {
        const int most = (int)std::min(a.expected.size(), b.expected.size());
        *size = random() % 2 ? most : 1 + (int)(random() % most);
        *begin = (int)(random() % (most - *size + 1));
    }

    void launch(Item &from, Item &to) {
        if (&from == &to) return;
        int begin, size;
        stretch(from, to, &begin, &size);
        // A crop shares what is newer, host or device, with its whole: bring both to the device first.
        for (Item *item : {&from, &to}) must(item->words.copy_to_device(vulkan_interface()), "copy_to_device");
        const uint32_t seed = random();
        {
            Words in = from.words.cropped(0, begin, size), out = to.words.cropped(0, begin, size);
            must(kernels.launch(random() % 6, in, seed, 8 << (random() % 4), out), "launch");
        }
        to.words.set_device_dirty();
        for (int i = begin; i < begin + size; i++) to.expected[i] = scramble(from.expected[i] + seed);
        operations++;
    }

    void copy(Item &from, Item &to) {
        if (&from == &to) return;
        int begin, size;
        stretch(from, to, &begin, &size);
        for (Item *item : {&from, &to}) must(item->words.copy_to_device(vulkan_interface()), "copy_to_device");
        {
            Words in = from.words.cropped(0, begin, size), out = to.words.cropped(0, begin, size);
            in.set_device_dirty();
            must(vulkan_interface()->buffer_copy(nullptr, in, vulkan_interface(), out), "buffer_copy");
        }
        to.words.set_device_dirty();
        std::copy_n(from.expected.begin() + begin, size, to.expected.begin() + begin);
        operations++;
    }
};

bool soak(const Options &options) {
    using Clock = std::chrono::steady_clock;
    Kernels kernels;
    const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    std::atomic<uint64_t> operations{0}, checks{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < options.threads; t++) {
        threads.emplace_back([&, t] {
            Worker worker(kernels, options.seed * 1000 + t);
            worker.warm_up();
            while (!failed && Clock::now() < end) worker.step();
            worker.check_all();
            operations += worker.operations;
            checks += worker.checks;
        });
    }
    // 100 samples, whatever the duration; none when threads may have ended, and freed what they held.
    MemoryUse use;
    for (;;) {
        std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds / 100));
        if (failed || Clock::now() >= end) break;
        use.sample();
    }
    for (std::thread &thread : threads) thread.join();
    printf("%.0f s, %d threads, seed %u: %llu launches and copies, %llu buffers compared\n", options.seconds,
           options.threads, options.seed, (unsigned long long)operations, (unsigned long long)checks);
    const bool flat = use.is_flat(options.seconds >= 600);
    if (!flat) printf("memory is not flat\n");
    return flat && !failed && operations > 0 && checks > 0;
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        if (argument == "--seconds" && i + 1 < argc)
            options.seconds = std::atof(argv[++i]);
        else if (argument == "--threads" && i + 1 < argc)
            options.threads = std::atoi(argv[++i]);
        else if (argument == "--seed" && i + 1 < argc)
            options.seed = (uint32_t)std::strtoul(argv[++i], nullptr, 0);
        else {
            fprintf(stderr, "usage: %s [--seconds N] [--threads N] [--seed N]\n", argv[0]);
            return 2;
        }
    }
    if (options.seconds <= 0 || options.threads < 1) {
        fprintf(stderr, "seconds and threads must be more than 0\n");
        return 2;
    }
    const bool right = soak(options);
    if (hv_layer_instances() == 0) {
        fprintf(stderr, "the counting layer is not in use: device memory was not seen\n");
        return 1;
    }
    printf("%s\n", right ? "all right" : "WRONG");
    return right ? 0 : 1;
}
