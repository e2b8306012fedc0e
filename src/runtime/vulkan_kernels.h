// vulkan_kernels.h: what one device compiled: a few pipelines for each kernel.
//
// A pipeline variant is fixed by the local size, the element count of dynamic shared memory, and whether the kernel is
// relocated (vulkan_spirv_patch.h). Most kernels have one; a kernel whose workgroup size is a parameter has as many as
// sizes are in use. Up to kVariants are kept, so that alternating sizes compile nothing; beyond that the one used
// longest ago dies when the GPU is done with it.
//
// Compiling takes milliseconds (21 for the first on an H200), so it happens outside every lock, see vulkan_launch.h.
// A failed compilation leaves the kernel as it was.
//
// Pipelines of modules whose content was dropped (vulkan_modules.h: 64 MiB are kept) go too, so that a program which
// makes new kernels without end does not fill the driver with them. A module that comes back is compiled again.
//
// Thread rule: unsafe, the device's lock, but for compile_variant, which touches nothing shared.

#ifndef HALIDE_VULKAN_KERNELS_H
#define HALIDE_VULKAN_KERNELS_H

#include "vulkan_modules.h"
#include "vulkan_shapes.h"

namespace halide_vulkan {
namespace {

// Workgroup sizes in use at one time: pipelines that adapt to an image use a handful.
constexpr uint32_t kVariants = 8;
// Dropped modules are looked for each time so many pipelines were compiled, at milliseconds each.
constexpr uint32_t kDropEvery = 32;

struct VariantKey {
    uint32_t local_size[3];
    uint32_t shared_elements;  // of the dynamic allocation; 0 when there is none
    bool relocated;

    bool operator==(const VariantKey &o) const {
        return local_size[0] == o.local_size[0] && local_size[1] == o.local_size[1] &&
               local_size[2] == o.local_size[2] && shared_elements == o.shared_elements && relocated == o.relocated;
    }
};

struct Variant {
    VariantKey key;
    VkPipeline pipeline;
    uint64_t last_use;  // epoch
    bool has_run;       // a dispatch was recorded
};

struct Kernel {
    const Module *module;
    const BlobKernel *code;
    uint32_t name_bytes;   // of code->name, its end included
    const char *asked_as;  // the entry's address when it was last asked for: a hint, compared by content all the same
    const SpirvInfo *info;
    Shape *shape;  // null until first launched
    Variant variants[kVariants];
    uint32_t variant_count;

    Variant *find(const VariantKey &key) {
        for (uint32_t i = 0; i < variant_count; i++) {
            if (variants[i].key == key) return &variants[i];
        }
        return nullptr;
    }
};

// The kernels of one module on one device.
struct CompiledModule {
    const Module *module;
    uint32_t loads;  // the module's, when `kernels` was pointed at its content: it may be dropped and read again
    Kernel *kernels;
    uint32_t count;
};

class Kernels {
public:
    // Null with the reason in failure. The kernel is owned here and does not move.
    Kernel *find(const Module *module, const char *entry, Failure &failure) {
        CompiledModule *compiled = find_module(module, failure);
        if (!compiled) return nullptr;
        // Names of one pipeline share long beginnings: comparing all of them costs more than the rest of the search.
        for (uint32_t i = 0; i < compiled->count; i++) {
            Kernel &k = compiled->kernels[i];
            if (k.asked_as == entry && same_text(k.code->name, entry)) return &k;
        }
        for (uint32_t i = 0; i < compiled->count; i++) {
            Kernel &k = compiled->kernels[i];
            if (!same_text(k.code->name, entry)) continue;
            k.asked_as = entry;
            return &k;
        }
        failure.because(kInternalError) << "Vulkan: kernel '" << entry << "' is not among the " << compiled->count
                                        << " of its module";
        return nullptr;
    }

    // Adds a compiled pipeline; it is owned here from now on. Another thread may have been faster: then ours dies.
    // `epoch`: the open one, so that a pipeline just made is not the first to go.
    Variant *add(Gpu &gpu, Deferred &deferred, Kernel &kernel, const VariantKey &key, VkPipeline pipeline,
                 uint64_t epoch) {
        if (++compiled % kDropEvery == 0) drop_unused(deferred);
        if (Variant *there = kernel.find(key)) {
            destroy_pipeline(gpu, pipeline);
            return there;
        }
        Variant *v = nullptr;
        if (kernel.variant_count < kVariants) {
            v = &kernel.variants[kernel.variant_count];
        } else {
            v = &kernel.variants[0];
            for (Variant &other : kernel.variants) {
                if (other.last_use < v->last_use) v = &other;
            }
            if (!deferred.push(Dying::pipeline, handle_number(v->pipeline), v->last_use)) {
                destroy_pipeline(gpu, pipeline);
                return nullptr;
            }
        }
        *v = {key, pipeline, epoch};
        if (kernel.variant_count < kVariants) kernel.variant_count++;
        return v;
    }

    static void destroy_pipeline(Gpu &gpu, VkPipeline pipeline) {
        trace("vk_destroy_compute_pipeline", handle_number(pipeline));
        gpu.vk.vkDestroyPipeline(gpu.device, pipeline, gpu.callbacks);
    }

    // Only when the GPU is done with everything.
    void destroy(Gpu &gpu) {
        for (CompiledModule *m : table) {
            if (!m) continue;
            destroy_kernels(gpu, *m);
            host_free(m);
        }
        table.release();
        count = 0;
    }

private:
    // Open addressing by the module's address; a power of two, at most half full.
    Array<CompiledModule *> table;
    uint32_t count;
    uint32_t compiled;  // pipelines, ever

    static void destroy_kernels(Gpu &gpu, CompiledModule &m) {
        for (uint32_t i = 0; i < m.count; i++) {
            for (uint32_t v = 0; v < m.kernels[i].variant_count; v++)
                destroy_pipeline(gpu, m.kernels[i].variants[v].pipeline);
        }
        host_free(m.kernels);
        m.kernels = nullptr;
    }

    size_t place_of(const Module *module) const {
        const size_t mask = table.size() - 1;
        size_t at = ((uintptr_t)module >> 4) * 0x9e3779b1u & mask;
        while (table[at] && table[at]->module != module) at = (at + 1) & mask;
        return at;
    }

    bool grow(Failure &failure) {
        Array<CompiledModule *> old;
        const size_t wanted = table.size() ? table.size() * 2 : 64;
        bool good = old.resize(table.size());
        for (size_t i = 0; good && i < table.size(); i++) old[i] = table[i];
        good = good && table.resize(wanted);
        if (good) {
            for (CompiledModule *&m : table) m = nullptr;
            for (CompiledModule *m : old) {
                if (m) table[place_of(m->module)] = m;
            }
        } else {
            failure.because(kOutOfMemory) << "Vulkan: out of host memory for the table of kernels";
        }
        old.release();
        return good;
    }

    // Forgets the dropped modules; their pipelines die when the GPU is done with them. Without host memory for it,
    // later.
    void drop_unused(Deferred &deferred) {
        Array<CompiledModule *> kept;
        if (kept.reserve(count)) {
            for (CompiledModule *&m : table) {
                if (m && (!Modules::is_dropped(m->module) || !give_up(*m, deferred))) kept.push(m);
                m = nullptr;
            }
            count = (uint32_t)kept.size();
            for (CompiledModule *m : kept) table[place_of(m->module)] = m;
        }
        kept.release();
    }
    static bool give_up(CompiledModule &m, Deferred &deferred) {
        size_t pipelines = 0;
        for (uint32_t i = 0; i < m.count; i++) pipelines += m.kernels[i].variant_count;
        if (!deferred.reserve(pipelines)) return false;
        for (uint32_t i = 0; i < m.count; i++) {
            for (uint32_t v = 0; v < m.kernels[i].variant_count; v++) {
                const Variant &variant = m.kernels[i].variants[v];
                deferred.push(Dying::pipeline, handle_number(variant.pipeline), variant.last_use);
            }
        }
        host_free(m.kernels);
        host_free(&m);
        return true;
    }

    CompiledModule *find_module(const Module *module, Failure &failure) {
        if (table.size()) {
            CompiledModule *m = table[place_of(module)];
            if (m) {
                if (m->loads != module->loads) refresh(*m);
                return m;
            }
        }
        if ((count + 1) * 2 > table.size() && !grow(failure)) return nullptr;
        const size_t kernels = module->blob.kernels.size();
        CompiledModule *m = (CompiledModule *)host_malloc(sizeof(CompiledModule));
        Kernel *list = (Kernel *)host_malloc(max_of<size_t>(kernels, 1) * sizeof(Kernel));
        if (!m || !list) {
            host_free(m);
            host_free(list);
            failure.because(kOutOfMemory) << "Vulkan: out of host memory for " << (uint64_t)kernels << " kernels";
            return nullptr;
        }
        __builtin_memset((void *)list, 0, kernels * sizeof(Kernel));
        *m = {module, 0, list, (uint32_t)kernels};
        refresh(*m);
        table[place_of(module)] = m;
        count++;
        return m;
    }

    // Points the kernels at the module's content. Equal content was read again, so pipelines stay right.
    static void refresh(CompiledModule &m) {
        for (uint32_t i = 0; i < m.count; i++) {
            m.kernels[i].module = m.module;
            m.kernels[i].code = &m.module->blob.kernels[i];
            m.kernels[i].info = &m.module->infos[i];
            m.kernels[i].name_bytes = (uint32_t)text_length(m.kernels[i].code->name) + 1;
        }
        m.loads = m.module->loads;
    }
};

// Compiles one variant. Called without a lock: reads the kernel's content, which does not change while the pipeline
// that launches it runs. The pipeline belongs to the caller.
inline VkPipeline compile_variant(Gpu &gpu, const Kernel &kernel, const VariantKey &key, Failure &failure) {
    const BlobKernel &code = *kernel.code;
    SpirvPatch patch = {{key.local_size[0], key.local_size[1], key.local_size[2]}, key.relocated};
    Array<uint32_t> words;
    if (!patch_spirv(code.spirv, code.spirv_words, *kernel.info, patch, words, failure)) {
        words.release();
        return VK_NULL_HANDLE;
    }
    VkShaderModuleCreateInfo module_info = {};
    module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    module_info.codeSize = words.size() * 4;
    module_info.pCode = words.data();
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult result = gpu.vk.vkCreateShaderModule(gpu.device, &module_info, gpu.callbacks, &module);
    words.release();
    if (result != VK_SUCCESS) {
        call_failed(failure, "vkCreateShaderModule", result) << " for kernel '" << code.name << "'";
        return VK_NULL_HANDLE;
    }
    name_object(gpu, VK_OBJECT_TYPE_SHADER_MODULE, module, code.name);
    // The three sizes and the shared memory are the only constants Halide makes.
    VkSpecializationMapEntry entries[4];
    uint32_t values[4];
    uint32_t n = 0;
    const auto set = [&](uint32_t id, uint32_t value) {
        if (id == 0) return;
        entries[n] = {id, n * 4, 4};
        values[n++] = value;
    };
    for (int i = 0; i < 3; i++) set(code.local_size_ids[i], key.local_size[i]);
    for (uint32_t i = 0; i < code.shared_count && n < 4; i++) {
        set(kernel.module->blob.shared[code.shared_begin + i].constant_id, key.shared_elements);
    }
    VkSpecializationInfo specialization = {n, entries, n * 4, values};
    VkComputePipelineCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = code.name;
    info.stage.pSpecializationInfo = n ? &specialization : nullptr;
    info.layout = kernel.shape->layout;
    VkPipeline pipeline = VK_NULL_HANDLE;
    result = gpu.vk.vkCreateComputePipelines(gpu.device, gpu.pipeline_cache, 1, &info, gpu.callbacks, &pipeline);
    gpu.vk.vkDestroyShaderModule(gpu.device, module, gpu.callbacks);
    if (result != VK_SUCCESS) {
        call_failed(failure, "vkCreateComputePipelines", result)
            << " for kernel '" << code.name << "' with a workgroup of " << key.local_size[0] << " x "
            << key.local_size[1] << " x " << key.local_size[2];
        return VK_NULL_HANDLE;
    }
    name_object(gpu, VK_OBJECT_TYPE_PIPELINE, pipeline, code.name);
    trace("vk_create_compute_pipeline", handle_number(pipeline));
    return pipeline;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_KERNELS_H
