// fault_kernels.h: the kernels of the failure tests, and what the mock driver runs in their place.
//
// The SPIR-V is real (test/correctness/spirv, assembled at build time; HV_SPIRV names the folder), so that the runtime
// reads and patches it as ever: out[i] = in[i] + add for i < n, in workgroups of 16. "line" is as Halide 19 to 21 emit
// it; "vector" is as its main branch does, over vectors of four ints, so a crop by one int needs a copy of the
// argument. The mock runs line() and vector() on the memory that is bound, which checks offsets, descriptors and push
// constants.

#ifndef HALIDE_VULKAN_FAULT_KERNELS_H
#define HALIDE_VULKAN_FAULT_KERNELS_H

#ifdef HV_FAULT_ON_LAYER
#include "layer_as_mock.h"
#else
#include "../mock/mock.h"
#endif

#include "HalideRuntime.h"

#include <stdint.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" {
int halide_vulkan_initialize_kernels(void *user_context, void **state, const char *blob, int size);
void halide_vulkan_finalize_kernels(void *user_context, void *state);
int halide_vulkan_run(void *user_context, void *state, const char *entry, int blocks_x, int blocks_y, int blocks_z,
                      int threads_x, int threads_y, int threads_z, int shared_bytes, size_t sizes[], void *args[],
                      int8_t is_buffer[]);
}

namespace fault {

constexpr int kGroup = 16;

// Elements of four bytes; `elements` of them to one index.
inline void run_line(const MockDispatch *d, int elements, int32_t out_offset, int32_t in_offset, uint32_t base) {
    int32_t n, add;
    memcpy(&n, d->bindings[0].bytes, 4);
    memcpy(&add, d->bindings[0].bytes + 4, 4);
    const MockBinding &out = d->bindings[1], &in = d->bindings[2];
    const int64_t out_size = (int64_t)(out.size / 4), in_size = (int64_t)(in.size / 4);
    const int64_t begin = (int64_t)base * kGroup, end = begin + (int64_t)d->groups[0] * kGroup;
    for (int64_t i = begin; i < end && i < n; i++) {
        for (int e = 0; e < elements; e++) {
            const int64_t from = (i + in_offset) * elements + e, to = (i + out_offset) * elements + e;
            int32_t value = 0;  // an access outside of a binding reads 0 and writes nothing, as robust access does
            if (from >= 0 && from < in_size) memcpy(&value, in.bytes + from * 4, 4);
            value += add;
            if (to >= 0 && to < out_size) memcpy(out.bytes + to * 4, &value, 4);
        }
    }
}

// The relocated variant's push constants: base_group[3], unused, an index offset for out and one for in.
inline void line(const MockDispatch *d) {
    int32_t push[6] = {};
    if (d->push) memcpy(push, d->push, sizeof(push));
    run_line(d, 1, push[4], push[5], (uint32_t)push[0]);
}
inline void vector(const MockDispatch *d) {
    int32_t members[4];
    memcpy(members, d->bindings[0].bytes, sizeof(members));
    run_line(d, 4, members[2], members[3], 0);
}
// The runtime's own kernels, both called "main": dense copies have two buffers, strided ones a grid before them.
inline void copy_dense(const MockDispatch *d) {
    uint32_t count;
    memcpy(&count, d->push, 4);
    memcpy(d->bindings[1].bytes, d->bindings[0].bytes, (size_t)count * 16);
}
// As vulkan_strided_kernel.h has it. The variant for bytes asks for the capability to address them.
inline void copy_strided(const MockDispatch *d) {
    constexpr uint32_t kOpCapability = 17, kStorageBuffer8BitAccess = 4448;
    uint32_t unit = 4;
    for (uint64_t at = 5; at + 1 < d->code_words && (d->code[at] & 0xffff) == kOpCapability; at += 2) {
        if (d->code[at + 1] == kStorageBuffer8BitAccess) unit = 1;
    }
    struct {
        uint32_t count, threads, run, inside, from, to, dims, unused;
        uint32_t dim[16][4];
    } grid = {};
    memcpy(&grid, d->bindings[0].bytes, d->bindings[0].size < sizeof(grid) ? d->bindings[0].size : sizeof(grid));
    for (uint32_t i = 0; i < grid.count; i++) {
        uint32_t point = (grid.inside + i) / grid.run;
        const uint32_t at = grid.inside + i - point * grid.run;
        uint32_t from = grid.from + at, to = grid.to + at;
        for (uint32_t k = 0; k < grid.dims; k++) {
            point += grid.dim[k][1];
            const uint32_t index = point % grid.dim[k][0];
            point /= grid.dim[k][0];
            from += index * grid.dim[k][2];
            to += index * grid.dim[k][3];
        }
        memcpy(d->bindings[2].bytes + (uint64_t)to * unit, d->bindings[1].bytes + (uint64_t)from * unit, unit);
    }
}
inline void copy(const MockDispatch *d) { d->binding_count == 2 ? copy_dense(d) : copy_strided(d); }

inline std::vector<uint32_t> read_spirv(const std::string &name) {
    const char *folder = getenv("HV_SPIRV");
    std::ifstream file(std::string(folder ? folder : ".") + "/" + name + ".spv", std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<uint32_t> words(bytes.size() / 4);
    if (!words.empty()) memcpy(words.data(), bytes.data(), words.size() * 4);
    return words;
}

inline void add_text(std::vector<uint32_t> &to, const std::string &text) {
    const size_t words = text.size() / 4 + 1, at = to.size() + 1;
    to.push_back((uint32_t)words);
    to.resize(at + words, 0);
    memcpy(&to[at], text.data(), text.size());
}

// A kernel of one uniform block and two buffers, as generated code would hold it.
class Kernel {
public:
    // The entry point is renamed, which changes the content: a module that the runtime has not seen.
    Kernel(const std::string &file, const std::string &name, int elements) : name(name), elements(elements) {
        std::vector<uint32_t> spirv = read_spirv(file);
        const std::string original = "_kernel_line";
        if (name.size() != original.size()) abort();
        for (size_t i = 0; i + 3 <= spirv.size(); i++) {
            if (memcmp(&spirv[i], original.data(), 12) == 0) memcpy(&spirv[i], name.data(), 12);
        }
        std::vector<uint32_t> module = {0, 1};
        add_text(module, name);
        for (uint32_t word : {1u, 2u, 0u, 0u, 0u, 0u, 0u}) module.push_back(word);
        module[0] = (uint32_t)module.size();
        module.insert(module.end(), spirv.begin(), spirv.end());
        blob = {1, (uint32_t)module.size() * 4};
        add_text(blob, name);
        blob.insert(blob.end(), module.begin(), module.end());
    }

    int initialize() {
        return halide_vulkan_initialize_kernels(nullptr, &state, (const char *)blob.data(), (int)blob.size() * 4);
    }
    void finalize() { halide_vulkan_finalize_kernels(nullptr, state); }
    // out = in + add over n ints. `depth`: threads in z, each of which does the same; another pipeline for each depth.
    int run(halide_buffer_t *out, halide_buffer_t *in, int n, int add, int depth = 1) {
        int count = n / elements;
        size_t sizes[5] = {8, 8, 4, 4, 0};
        void *args[5] = {out, in, &count, &add, nullptr};
        int8_t is_buffer[5] = {1, 1, 0, 0, 0};
        const int code = halide_vulkan_run(nullptr, state, name.c_str(), (count + kGroup - 1) / kGroup, 1, 1, kGroup, 1,
                                           depth, 0, sizes, args, is_buffer);
        if (code == 0) out->set_device_dirty(true);
        return code;
    }
    // One pipeline call.
    int operator()(halide_buffer_t *out, halide_buffer_t *in, int n, int add, int depth = 1) {
        int code = initialize();
        if (code) return code;
        code = run(out, in, n, add, depth);
        finalize();
        return code;
    }

    const std::string name;

private:
    std::vector<uint32_t> blob;
    void *state = nullptr;  // as a pipeline's own word: kept from call to call
    int elements;
};

inline void register_kernels() {
    mock_kernel("_kernel_line", line);
    mock_kernel("_kernel_n", line);  // and any three letters: kernels that the runtime has not seen
    mock_kernel("_kernel_vect", vector);
    mock_kernel("main", copy);
}

}  // namespace fault

#endif
