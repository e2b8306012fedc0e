// random_pipeline.h: a pipeline made from a seed, with one of two schedules: plain on the CPU, or random on the GPU.
//
// Made twice from one seed, the algorithm is the same; what differs is where it is computed. So the CPU's result is the
// right one for the GPU's, if nothing in the algorithm is left to the device. Therefore: signed arithmetic that could
// overflow 32 or 64 bits is done unsigned; floats are whole numbers that stay below 2^24, so that every sum and product
// is exact in any order; float is cast to integers only from values that fit.
//
// The generator is after the runtime, not the code generator: many buffers and scalars of all types, any number of
// stages on either side, shared memory, dynamic workgroup sizes, updates over neighbours.

#ifndef HALIDE_VULKAN_TEST_RANDOM_PIPELINE_H
#define HALIDE_VULKAN_TEST_RANDOM_PIPELINE_H

#include "Halide.h"

#include <random>
#include <string>
#include <vector>

namespace vulkan_test {

// Accesses reach at most this far beside the point that is computed, all stages together.
constexpr int kReach = 4;

class RandomPipeline {
public:
    RandomPipeline(uint32_t seed, bool on_gpu) : algorithm(seed) {
        make_algorithm();
        if (on_gpu) {
            std::mt19937 schedule(seed + 0x9e3779b9u);
            make_schedule(schedule);
        } else {
            for (size_t i = 0; i + 1 < stages.size(); i++) stages[i].compute_root();
        }
    }

    struct Scalar {
        Halide::Type type;
        Halide::Param<> param;
    };

    int dimensions = 0;
    bool any_stride = false;  // dimension 0 of inputs and output need not be dense
    std::vector<Halide::ImageParam> inputs;
    std::vector<Scalar> scalars;
    std::vector<Halide::Func> stages;
    std::vector<Halide::Param<int>> widths;  // dynamic workgroup sizes, of the GPU's schedule only
    std::string schedule_text;

    Halide::Func &output() { return stages.back(); }

private:
    using Expr = Halide::Expr;

    std::mt19937 algorithm;
    std::vector<Halide::Var> vars;
    std::vector<std::pair<size_t, size_t>> uses;  // (stage, earlier stage that it reads)
    std::vector<Halide::Func> sources;            // the inputs, as they are or continued beyond their edges

    uint32_t dice(uint32_t sides) { return (uint32_t)algorithm() % sides; }

    Halide::Type random_type() {
        static const Halide::Type types[] = {Halide::UInt(8),  Halide::UInt(8),  Halide::Int(8),   Halide::UInt(16),
                                             Halide::Int(16),  Halide::UInt(32), Halide::Int(32),  Halide::Float(32),
                                             Halide::UInt(32), Halide::Int(64),  Halide::UInt(64), Halide::Float(32)};
        return types[dice(12)];
    }

    // Any value as one of another type, without asking what the device does at the edges.
    static Expr as(Halide::Type type, Expr value) {
        if (value.type() == type) return value;
        if (type.is_float()) {
            if (value.type().is_int()) value = Halide::cast(value.type().with_code(halide_type_uint), value);
            return Halide::cast(type, Halide::cast<int32_t>(value & Halide::cast(value.type(), 127))) - 50.0f;
        }
        if (value.type().is_float()) {
            value = Halide::cast<int32_t>(value);
            // Halide makes one cast of two. What of a float does not fit the second type is the device's to decide
            // then, and an H200 decides otherwise than a CPU.
            if (type.is_uint() || type.bits() < 32) value = value & 127;
        }
        return Halide::cast(type, value);
    }

    std::vector<Expr> near(int reach) {
        std::vector<Expr> at;
        for (Halide::Var &v : vars) at.push_back(v + (int)dice(2 * reach + 1) - reach);
        return at;
    }

    Expr leaf(Halide::Type type, size_t stage) {
        const uint32_t kind = dice(10);
        if (kind < 3 && stage > 0) {
            const size_t which = dice(3) ? stage - 1 : dice((uint32_t)stage);
            uses.emplace_back(stage, which);
            return as(type, stages[which](near(1)));
        }
        if (kind < 7) return as(type, sources[dice((uint32_t)inputs.size())](near(1)));
        if (kind < 8 && !scalars.empty()) {
            const Scalar &scalar = scalars[dice((uint32_t)scalars.size())];
            return as(type, Expr(scalar.param));
        }
        if (kind < 9) return as(type, Expr(vars[dice((uint32_t)vars.size())]) + 100);
        return as(type, Expr((int32_t)dice(100)));
    }

    Expr float_value(size_t stage, int depth) {
        const Halide::Type type = Halide::Float(32);
        const Expr a = value(type, stage, depth - 1), b = value(type, stage, depth - 1);
        Expr result;
        switch (dice(6)) {
        case 0: result = a + b; break;
        case 1: result = a - b; break;
        case 2: result = a * b; break;
        case 3: result = min(a, b); break;
        case 4: result = max(a, b); break;
        default: result = select(a < b, a, b + 1.0f);
        }
        return clamp(result, -1000.0f, 1000.0f);
    }

    Expr integer_value(Halide::Type type, size_t stage, int depth) {
        if (type.is_int() && dice(2)) return as(type, value(type.with_code(halide_type_uint), stage, depth));
        const Expr a = value(type, stage, depth - 1), b = value(type, stage, depth - 1);
        const auto constant = [&](uint32_t most) { return Halide::cast(type, (int32_t)(1 + dice(most))); };
        // What cannot overflow is for all; the rest wraps around, which is defined for unsigned types alone.
        switch (dice(type.is_uint() ? 13 : 9)) {
        case 0: return min(a, b);
        case 1: return max(a, b);
        case 2: return select(a < b, a, b);
        case 3: return a & b;
        case 4: return a ^ b;
        case 5: return a >> Halide::cast(type, (int32_t)dice((uint32_t)type.bits()));
        case 6: return a / constant(100);
        case 7: return a % constant(100);
        case 8: return a >> Halide::cast(type.with_code(halide_type_uint), (int32_t)dice((uint32_t)type.bits()));
        case 9: return a + b;
        case 10: return a - b;
        case 11: return a * b;
        default: return a << Halide::cast(type, (int32_t)dice((uint32_t)type.bits()));
        }
    }

    Expr value(Halide::Type type, size_t stage, int depth) {
        if (depth <= 0) return leaf(type, stage);
        return type.is_float() ? float_value(stage, depth) : integer_value(type, stage, depth);
    }

    void make_algorithm() {
        static const char *const names[] = {"x", "y", "z"};
        dimensions = 1 + (int)dice(3);
        any_stride = dice(2) == 0;
        for (int d = 0; d < dimensions; d++) vars.emplace_back(names[d]);
        const uint32_t input_count = 1 + dice(4), scalar_count = dice(5), stage_count = 1 + dice(kReach);
        for (uint32_t i = 0; i < input_count; i++) {
            Halide::ImageParam input(random_type(), dimensions, "in" + std::to_string(i));
            if (any_stride) input.dim(0).set_stride(Expr());
            inputs.push_back(input);
            Halide::Func source("source" + std::to_string(i));
            std::vector<Expr> at(vars.begin(), vars.end());
            source(vars) = input(at);
            sources.push_back(dice(3) ? source : Halide::BoundaryConditions::repeat_edge(input));
        }
        for (uint32_t i = 0; i < scalar_count; i++) {
            const Halide::Type type = random_type();
            scalars.push_back({type, Halide::Param<>(type, "scalar" + std::to_string(i))});
        }
        for (uint32_t i = 0; i < stage_count; i++) {
            Halide::Func f("stage" + std::to_string(i));
            const Halide::Type type = random_type();
            const int depth = 1 + (int)dice(3);
            Expr result = value(type, i, depth);
            if (i > 0) {
                // Every stage is needed.
                uses.emplace_back(i, i - 1);
                const Expr before = as(type, stages[i - 1](near(1)));
                result = type.is_float()  ? clamp(result + before, -1000.0f, 1000.0f)
                         : type.is_uint() ? result + before
                                          : result ^ before;
            }
            f(vars) = result;
            if (dice(4) == 0) add_update(f, type);
            stages.push_back(f);
        }
        if (any_stride) output().output_buffer().dim(0).set_stride(Expr());
    }

    // f(x, ...) combined with a source over its neighbours in x.
    void add_update(Halide::Func &f, Halide::Type type) {
        Halide::RDom r(-1, 3);
        std::vector<Expr> point(vars.begin(), vars.end()), beside = point;
        beside[0] = vars[0] + r;
        const Expr more = as(type, sources[dice((uint32_t)sources.size())](beside)), old = f(point);
        f(vars) = type.is_float() ? clamp(old + more, -1000.0f, 1000.0f) : type.is_uint() ? old + more : old ^ more;
    }

    // Tiles of one dimension or two; the rest are blocks. Returns the innermost block variable; *is_static says that
    // the tile's size is no argument.
    template<typename FuncOrStage>
    Halide::Var tile(FuncOrStage f, std::mt19937 &random, bool *is_static) {
        static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 32};
        const Halide::TailStrategy tail = Halide::TailStrategy::GuardWithIf;
        Halide::Var xo, yo, xi, yi;
        const bool flat = dimensions == 1 || random() % 4 == 0;
        // At most 128 threads, which every device has.
        const int wx = sizes[random() % 9], wy = flat ? 1 : 1 + (int)(random() % 4);
        Expr width = wx;
        schedule_text += " tile " + std::to_string(wx) + "x" + std::to_string(wy);
        *is_static = random() % 3 != 0;
        if (!*is_static) {
            widths.emplace_back("width" + std::to_string(widths.size()));
            width = widths.back();
            schedule_text += " dynamic";
        }
        if (flat) {
            f.gpu_tile(vars[0], xo, xi, width, tail);
            for (int d = 1; d < dimensions; d++) f.gpu_blocks(vars[d]);
        } else {
            f.gpu_tile(vars[0], vars[1], xo, yo, xi, yi, width, wy, tail);
            if (dimensions == 3) f.gpu_blocks(vars[2]);
        }
        return xo;
    }

    // From the last to the first, since a stage can be computed within a tile of the one after it.
    void make_schedule(std::mt19937 &random) {
        Halide::Var block;
        bool can_hold = false;  // the stage after this one has tiles of a known size
        for (size_t i = stages.size(); i-- > 0;) {
            Halide::Func &f = stages[i];
            const bool last = i + 1 == stages.size(), simple = f.num_update_definitions() == 0;
            schedule_text += " " + f.name() + ":";
            const uint32_t kind = random() % 10;
            const bool was_held = can_hold && !last && used_by_next_only(i) && kind < 4;
            can_hold = false;
            if (was_held) {
                schedule_text += " shared";
                f.compute_at(stages[i + 1], block).store_in(Halide::MemoryType::GPUShared).gpu_threads(vars[0]);
                for (int u = 0; u < f.num_update_definitions(); u++) f.update(u).gpu_threads(vars[0]);
            } else if (!last && simple && kind < 6) {
                schedule_text += " inline";
            } else {
                if (!last) f.compute_root();
                if (kind == 9) {
                    schedule_text += " on the CPU";
                    continue;
                }
                block = tile(f, random, &can_hold);
                can_hold = can_hold && simple;
                bool ignored = false;
                for (int u = 0; u < f.num_update_definitions(); u++) tile(f.update(u), random, &ignored);
            }
        }
    }

    bool used_by_next_only(size_t stage) const {
        for (const auto &[user, used] : uses) {
            if (used == stage && user != stage + 1) return false;
        }
        return true;
    }
};

}  // namespace vulkan_test

#endif
