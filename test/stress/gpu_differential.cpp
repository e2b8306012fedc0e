// stress_gpu_differential: random pipelines give the same on the GPU as on the CPU.
//
//   stress_gpu_differential [--seed N | --seed clock] [--cases N] [--seconds N] [--verbose]
//
// A seed makes a pipeline (random_pipeline.h), and the buffers it runs on: their sizes, origins, order of strides and
// padding, whether they are crops, and whether crops are made of device memory or of host memory. Case i has the seed
// N + i. Each runs three times, one call after the other with other buffers and scalars, and only then are the outputs
// fetched and compared, each with its surroundings, which must be untouched. Ends after that many cases, or, with
// --seconds, when the time is over. Exit code: 0 all equal, 1 a difference or an error, 2 a wrong command line.
//
// On the stock runtime (VK_RUNTIME_UNDER_TEST=stock) it shows where that differs from the CPU.

#include "../correctness/support.h"
#include "random_pipeline.h"

#include <chrono>

using namespace Halide;
using namespace vulkan_test;

namespace {

using AnyBuffer = Runtime::Buffer<void>;

struct Options {
    uint32_t seed = 1, cases = 200;
    double seconds = 0;
    bool verbose = false;
};

// A buffer and the part of it that a pipeline sees.
struct Framed {
    AnyBuffer whole, part;
};

// Which rows and columns there are, for one run.
struct Shape {
    std::vector<int> mins, extents;
};

Shape random_shape(std::mt19937 &random, int dimensions) {
    static const int most[] = {3000, 50, 14};
    Shape shape;
    for (int d = 0; d < dimensions; d++) {
        shape.mins.push_back((int)(random() % 20) - 10);
        shape.extents.push_back(1 + (int)(random() % most[dimensions - 1]));
    }
    return shape;
}

// A whole that is up to 3 larger on each side, in any order of strides.
Framed random_buffer(std::mt19937 &random, Type type, const Shape &shape, bool any_stride) {
    const int dimensions = (int)shape.mins.size();
    std::vector<halide_dimension_t> dims(dimensions);
    std::vector<int> order(dimensions);
    for (int d = 0; d < dimensions; d++) {
        order[d] = d;
        const int before = (int)(random() % 4), after = (int)(random() % 4);
        dims[d].min = shape.mins[d] - before;
        dims[d].extent = shape.extents[d] + before + after;
    }
    if (any_stride) std::shuffle(order.begin(), order.end(), random);
    int64_t stride = any_stride && random() % 3 == 0 ? 2 : 1;
    for (int d : order) {
        dims[d].stride = (int32_t)stride;
        stride = stride * dims[d].extent + (random() % 3 == 0 ? random() % 5 : 0);
    }
    Framed framed;
    framed.whole = AnyBuffer(type, nullptr, dimensions, dims.data());
    framed.whole.allocate();
    uint8_t *bytes = (uint8_t *)framed.whole.begin();
    // Small values: a float of random bits would be no whole number.
    if (type.is_float()) {
        float *values = (float *)bytes;
        for (size_t i = 0; i < framed.whole.size_in_bytes() / 4; i++) values[i] = (float)((int)(random() % 400) - 200);
    } else {
        for (size_t i = 0; i < framed.whole.size_in_bytes(); i++) bytes[i] = (uint8_t)random();
    }
    framed.whole.set_host_dirty();
    return framed;
}

// If the whole is on the device by now, the part is a crop of that, else of host memory alone.
void take_part(Framed &framed, const Shape &shape) {
    std::vector<std::pair<int, int>> rectangle;
    for (size_t d = 0; d < shape.mins.size(); d++) rectangle.emplace_back(shape.mins[d], shape.extents[d]);
    framed.part = framed.whole.cropped(rectangle);
}

void to_device(AnyBuffer &buffer) {
    Context context;
    if (buffer.copy_to_device(vulkan_interface(), context.raw()) != 0) throw RuntimeError(context.all());
}

template<typename T>
void set_random(Param<> &param, std::mt19937 &random) {
    param.set<T>((T)(random() % 200));
}

void set_scalar(RandomPipeline::Scalar &scalar, std::mt19937 &random) {
    const Type t = scalar.type;
    if (t.is_float()) return set_random<float>(scalar.param, random);
    if (t.is_uint()) {
        switch (t.bits()) {
        case 8: return set_random<uint8_t>(scalar.param, random);
        case 16: return set_random<uint16_t>(scalar.param, random);
        case 32: return set_random<uint32_t>(scalar.param, random);
        default: return set_random<uint64_t>(scalar.param, random);
        }
    }
    switch (t.bits()) {
    case 8: return set_random<int8_t>(scalar.param, random);
    case 16: return set_random<int16_t>(scalar.param, random);
    case 32: return set_random<int32_t>(scalar.param, random);
    default: return set_random<int64_t>(scalar.param, random);
    }
}

// One call: sets what the pipeline reads and runs it into the part of `out`.
Framed run(RandomPipeline &p, const Target &target, uint32_t seed, bool on_gpu) {
    std::mt19937 random(seed), gpu_random(seed + 77);
    const Shape shape = random_shape(random, p.dimensions);
    Shape around = shape;
    for (int d = 0; d < p.dimensions; d++) {
        around.mins[d] -= kReach + 1;
        around.extents[d] += 2 * kReach + 2;
    }
    std::vector<Framed> inputs;
    for (ImageParam &input : p.inputs) {
        inputs.push_back(random_buffer(random, input.type(), around, p.any_stride));
        Framed &in = inputs.back();
        if (on_gpu && gpu_random() % 2) to_device(in.whole);
        take_part(in, around);
        AnyBuffer part = in.part;
        input.set(Buffer<>(std::move(part)));
    }
    for (auto &scalar : p.scalars) set_scalar(scalar, random);
    for (Param<int> &width : p.widths) width.set(1 + (int)(gpu_random() % 32));
    Framed out = random_buffer(random, p.output().type(), shape, p.any_stride);
    const bool on_device = on_gpu && gpu_random() % 2;
    if (on_device) to_device(out.whole);
    out.whole.set_host_dirty(false);
    take_part(out, shape);
    p.output().realize(Pipeline::RealizationArg(out.part.raw_buffer()), target);
    // Of device memory the rest comes back too: nothing beside the part may have been written there.
    if (on_device && out.part.device_dirty()) {
        out.part.set_device_dirty(false);
        out.whole.set_device_dirty();
    }
    return out;
}

std::string difference(const AnyBuffer &got, const AnyBuffer &want) {
    std::string first;
    size_t wrong = 0, bytes = got.type().bytes();
    got.for_each_element([&](const int *at) {
        const void *a = got.raw_buffer()->address_of(at), *b = want.raw_buffer()->address_of(at);
        if (std::memcmp(a, b, bytes) == 0) return;
        if (wrong++ > 0) return;
        std::ostringstream text;
        text << "(";
        for (int d = 0; d < got.dimensions(); d++) text << (d ? ", " : "") << at[d];
        text << ") is";
        for (const void *p : {a, b}) {
            uint64_t bits = 0;
            std::memcpy(&bits, p, bytes);
            text << (p == b ? " instead of 0x" : " 0x") << std::hex << bits;
        }
        first = text.str();
    });
    if (wrong == 0) return "";
    return std::to_string(wrong) + " of " + std::to_string(got.number_of_elements()) +
           " elements differ, the first at " + first;
}

bool check_case(uint32_t seed, bool verbose) {
    static const Target cpu = Target("host-no_asserts"), gpu = gpu_target();
    std::string wrong, text;
    try {
        RandomPipeline on_cpu(seed, false), on_gpu(seed, true);
        text = on_gpu.schedule_text;
        std::vector<Framed> got, want;
        for (uint32_t i = 0; i < 3; i++) {
            got.push_back(run(on_gpu, gpu, seed * 3 + i, true));
            want.push_back(run(on_cpu, cpu, seed * 3 + i, false));
        }
        for (size_t i = got.size(); i-- > 0 && wrong.empty();) {
            AnyBuffer &fetched = got[i].part.device_dirty() ? got[i].part : got[i].whole;
            Context context;
            if (fetched.copy_to_host(context.raw()) != 0) wrong = context.all();
            if (wrong.empty()) wrong = difference(got[i].whole, want[i].whole);
        }
    } catch (const Error &error) {
        wrong = error.what();
    }
    if (verbose || !wrong.empty())
        printf("seed %u:%s: %s\n", seed, text.c_str(), wrong.empty() ? "equal" : wrong.c_str());
    return wrong.empty();
}

}  // namespace

int main(int argc, char **argv) {
    using Clock = std::chrono::steady_clock;
    Options options;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (argument == "--verbose") {
            options.verbose = true;
            continue;
        }
        if (!value || (argument != "--seed" && argument != "--cases" && argument != "--seconds")) {
            fprintf(stderr, "usage: %s [--seed N | --seed clock] [--cases N] [--seconds N] [--verbose]\n", argv[0]);
            return 2;
        }
        if (argument == "--seconds")
            options.seconds = std::atof(value);
        else if (argument == "--cases")
            options.cases = (uint32_t)std::strtoul(value, nullptr, 0);
        else
            options.seed = std::strcmp(value, "clock") == 0
                               ? (uint32_t)std::chrono::system_clock::now().time_since_epoch().count()
                               : (uint32_t)std::strtoul(value, nullptr, 0);
        i++;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);  // what was found must be seen even if a later case crashes
    printf("from seed %u\n", options.seed);
    const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    uint32_t done = 0, different = 0;
    while (options.seconds > 0 ? Clock::now() < end : done < options.cases) {
        different += !check_case(options.seed + done, options.verbose);
        done++;
    }
    printf("%u cases, %u differ from the CPU\n", done, different);
    return done > 0 && different == 0 ? 0 : 1;
}
