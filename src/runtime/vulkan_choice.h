// vulkan_choice.h: which of the machine's devices is used. [pure]
//
// Problem: a machine may have several GPUs, and nearly every Linux machine also has a CPU device (lavapipe). Whoever
// asked for a GPU and silently got the CPU sees a program that works, fifty times slower. So what is asked for is met
// or refused, and a refusal lists what is there. Only who asks for nothing may get a CPU device, and gets it last.
//
// Three ways to ask, the more exact one first:
//   HL_VK_DEVICE       one device: its place in the loader's list (up to two digits), its UUID, or a part of its name
//   HL_GPU_DEVICE      Halide's own for every GPU API (also halide_set_gpu_device): the n-th GPU, counted from 0.
//                      Counted are the devices that are no CPU; with HL_VK_DEVICE_TYPE, those of that type
//   HL_VK_DEVICE_TYPE  the first device of that type; beside HL_VK_DEVICE it must agree with it
// A number longer than two digits is part of a name: "4090" and "100" are what people call their GPU.
//
// Thread rule: plain functions of their arguments.

#ifndef HALIDE_VULKAN_CHOICE_H
#define HALIDE_VULKAN_CHOICE_H

#include "vulkan_plan.h"

namespace halide_vulkan {
namespace {

// What a user can ask for with HL_VK_DEVICE_TYPE.
enum class DeviceWish {
    any,  // unset
    gpu,  // integrated or discrete
    discrete,
    integrated,
    virtual_gpu,
    cpu,
};

struct DeviceRequest {
    const char *device;              // HL_VK_DEVICE; empty: not asked
    const char *type;                // HL_VK_DEVICE_TYPE; empty: not asked
    int gpu;                         // HL_GPU_DEVICE as Halide reads it, or what it was set to; negative: not asked
    const char *gpu_text = nullptr;  // HL_GPU_DEVICE as it stands; null or empty: unset
};

// What decided.
enum class ChosenBy {
    nothing,
    index,
    uuid,
    name,
    gpu_index,
    type,
    first_gpu,     // nothing was asked
    first_device,  // nothing was asked, and there is no GPU
};

struct DeviceChoice {
    uint32_t index;  // kNoIndex: none, and the failure says why
    ChosenBy by;
};

// The text is matched by substring in the documented order, so that "cpu" wins over "gpu" and "discrete-gpu" is
// discrete.
inline bool parse_device_wish(const char *text, DeviceWish &out, Failure &failure) {
    if (!*text) {
        out = DeviceWish::any;
    } else if (contains(text, "cpu")) {
        out = DeviceWish::cpu;
    } else if (contains(text, "integrated-gpu")) {
        out = DeviceWish::integrated;
    } else if (contains(text, "discrete-gpu")) {
        out = DeviceWish::discrete;
    } else if (contains(text, "virtual-gpu")) {
        out = DeviceWish::virtual_gpu;
    } else if (contains(text, "gpu")) {
        out = DeviceWish::gpu;
    } else {
        (failure.because(kGenericError) << "Vulkan: device type ").quote(text)
            << " is not known; HL_VK_DEVICE_TYPE takes gpu, discrete-gpu, integrated-gpu, virtual-gpu or cpu";
        return false;
    }
    return true;
}

inline bool is_usual_gpu(VkPhysicalDeviceType type) {
    return type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
}

inline bool fits_wish(VkPhysicalDeviceType type, DeviceWish wish) {
    switch (wish) {
    case DeviceWish::any: return true;
    case DeviceWish::gpu: return is_usual_gpu(type);
    case DeviceWish::discrete: return type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    case DeviceWish::integrated: return type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    case DeviceWish::virtual_gpu: return type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU;
    case DeviceWish::cpu: return type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    }
    return false;
}

inline char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

inline bool contains_in_any_case(const char *text, const char *part) {
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && lower_case(text[i]) == lower_case(part[i])) i++;
        if (!part[i]) return true;
    }
    return false;
}

// A machine has fewer than a hundred devices, and the numbers in names of GPUs are longer.
constexpr int kIndexDigits = 2;

inline bool parse_index(const char *text, uint32_t &out) {
    int n = 0;
    for (out = 0; text[n] >= '0' && text[n] <= '9'; n++) {
        if (n == kIndexDigits) return false;
        out = out * 10 + (uint32_t)(text[n] - '0');
    }
    return n > 0 && !text[n];
}

inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower_case(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// 32 hexadecimal digits with dashes anywhere between bytes, and "GPU-" before them, as nvidia-smi writes it.
inline bool parse_uuid(const char *text, uint8_t (&out)[VK_UUID_SIZE]) {
    if (lower_case(text[0]) == 'g' && lower_case(text[1]) == 'p' && lower_case(text[2]) == 'u' && text[3] == '-')
        text += 4;
    uint32_t n = 0;
    while (*text) {
        if (*text == '-' && n > 0) {
            text++;
            continue;
        }
        const int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0 || n == VK_UUID_SIZE) return false;
        out[n++] = (uint8_t)(high * 16 + low);
        text += 2;
    }
    return n == VK_UUID_SIZE;
}

HALIDE_VULKAN_COLD inline void write_uuid(Text &text, const uint8_t (&uuid)[VK_UUID_SIZE]) {
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) {
        const char digits[3] = {"0123456789abcdef"[uuid[i] >> 4], "0123456789abcdef"[uuid[i] & 15], 0};
        text << (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") << digits;
    }
}

inline bool can_compute(const DeviceOffer &offer) {
    return pick_queue_family(offer.families, offer.family_count) != kNoIndex;
}

// Who asks for nothing, or by a name that several have, gets the highest. 0: of no use.
inline uint32_t rank_of(const DeviceOffer &offer) {
    const VkPhysicalDeviceType type = offer.properties.deviceType;
    if (!can_compute(offer)) return 0;
    return is_usual_gpu(type) ? 3 : type != VK_PHYSICAL_DEVICE_TYPE_CPU ? 2 : 1;
}

// Ends a refusal: what could have been asked for. UUIDs only to who asked by one: a message has 512 characters.
HALIDE_VULKAN_COLD inline void list_offers(Text &text, const DeviceOffer *offers, uint32_t count, bool uuids) {
    text << "; there " << (count == 1 ? "is 1 device:" : "are ");
    if (count != 1) text << count << " devices:";
    for (uint32_t i = 0; i < count; i++) {
        text << (i ? ", " : " ") << i << " = " << offers[i].properties.deviceName << " ("
             << device_type_name(offers[i].properties.deviceType) << (can_compute(offers[i]) ? "" : ", cannot compute");
        if (uuids && offers[i].has_uuid) {
            text << ", ";
            write_uuid(text, offers[i].uuid);
        }
        text << ")";
    }
}

// HL_VK_DEVICE. A device that is named but may not be used is refused, with the reason; another is not looked for.
HALIDE_VULKAN_COLD inline DeviceChoice pick_named(const DeviceOffer *offers, uint32_t count,
                                                  const DeviceRequest &request, DeviceWish wish, Failure &failure) {
    DeviceChoice choice = {kNoIndex, ChosenBy::name};
    uint32_t index = 0;
    uint8_t uuid[VK_UUID_SIZE];
    if (parse_index(request.device, index)) {
        choice.by = ChosenBy::index;
        if (index < count) choice.index = index;
    } else if (parse_uuid(request.device, uuid)) {
        choice.by = ChosenBy::uuid;
        for (uint32_t i = 0; i < count && choice.index == kNoIndex; i++) {
            if (offers[i].has_uuid && __builtin_memcmp(offers[i].uuid, uuid, VK_UUID_SIZE) == 0) choice.index = i;
        }
    } else {
        // Of several with such a name, the first GPU that may be used; a name is often that of a kind of GPU.
        uint32_t best_rank = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (!contains_in_any_case(offers[i].properties.deviceName, request.device)) continue;
            const uint32_t rank =
                fits_wish(offers[i].properties.deviceType, wish) ? rank_of(offers[i]) + 1 : 1;  // 1: may not be used
            if (rank > best_rank) choice.index = i, best_rank = rank;
        }
    }
    if (choice.index != kNoIndex) {
        const DeviceOffer &found = offers[choice.index];
        if (can_compute(found) && fits_wish(found.properties.deviceType, wish)) return choice;
    }
    Text text = failure.because(kGenericError);
    (text << "Vulkan: HL_VK_DEVICE is ").quote(request.device) << ", which ";
    if (choice.index == kNoIndex) {
        text << "is no device's "
             << (choice.by == ChosenBy::index  ? "index"
                 : choice.by == ChosenBy::uuid ? "UUID"
                                               : "index or UUID, nor a part of a name");
    } else if (!can_compute(offers[choice.index])) {
        text << "cannot compute";
    } else {
        (text << "is not of the type ").quote(request.type) << " that HL_VK_DEVICE_TYPE asks for";
    }
    list_offers(text, offers, count, choice.by == ChosenBy::uuid);
    return {kNoIndex, choice.by};
}

// Halide makes a number of HL_GPU_DEVICE as atoi does: "abc" is 0 to it, and "1st" is 1. It tells the number alone, so
// what halide_set_gpu_device set is told apart from the variable by being another.
HALIDE_VULKAN_COLD inline bool check_gpu_text(const DeviceRequest &request, Failure &failure) {
    const char *at = request.gpu_text;
    if (!at || !*at) return true;
    while (*at == ' ' || (*at >= '\t' && *at <= '\r')) at++;
    const bool negative = *at == '-';
    if (*at == '-' || *at == '+') at++;
    const char *const first = at;
    int64_t number = 0;
    while (*at >= '0' && *at <= '9') number = min_of<int64_t>(number * 10 + (*at++ - '0'), INT64_C(1) << 40);
    if (at != first && !*at && number <= INT32_MAX) return true;
    if (number <= INT32_MAX && (negative ? -number : number) != request.gpu) return true;
    (failure.because(kGenericError) << "Vulkan: HL_GPU_DEVICE is ").quote(request.gpu_text)
        << "; it takes a whole number: which GPU, from 0. HL_VK_DEVICE chooses by name or UUID";
    return false;
}

// HL_GPU_DEVICE, HL_VK_DEVICE_TYPE: the n-th of those that fit.
HALIDE_VULKAN_COLD inline DeviceChoice pick_nth(const DeviceOffer *offers, uint32_t count, const DeviceRequest &request,
                                                DeviceWish wish, Failure &failure) {
    const bool by_index = request.gpu >= 0, any_gpu = wish == DeviceWish::any;
    uint32_t left = by_index ? (uint32_t)request.gpu : 0, fitting = 0;
    for (uint32_t i = 0; i < count; i++) {
        const VkPhysicalDeviceType type = offers[i].properties.deviceType;
        if (!can_compute(offers[i])) continue;
        if (any_gpu ? type == VK_PHYSICAL_DEVICE_TYPE_CPU : !fits_wish(type, wish)) continue;
        fitting++;
        if (left-- == 0) return {i, by_index ? ChosenBy::gpu_index : ChosenBy::type};
    }
    Text text = failure.because(kGenericError);
    text << "Vulkan: ";
    if (!by_index) {
        (text << "no compute device of type ").quote(request.type) << ", which HL_VK_DEVICE_TYPE asks for";
    } else if (any_gpu) {
        text << "HL_GPU_DEVICE (or halide_set_gpu_device) is " << request.gpu << ", but the number of GPUs is "
             << fitting << (fitting == 0 ? " (HL_VK_DEVICE_TYPE=cpu allows a CPU device)" : "");
    } else {
        text << "HL_GPU_DEVICE (or halide_set_gpu_device) is " << request.gpu << ", but the number of devices of type ";
        text.quote(request.type) << " is " << fitting;
    }
    list_offers(text, offers, count, false);
    return {kNoIndex, ChosenBy::nothing};
}

// The device to use. Who asks for nothing gets a GPU if there is one, and a CPU device last.
HALIDE_VULKAN_COLD inline DeviceChoice pick_device(const DeviceOffer *offers, uint32_t count,
                                                   const DeviceRequest &request, Failure &failure) {
    DeviceWish wish = DeviceWish::any;
    if (!parse_device_wish(request.type, wish, failure)) return {kNoIndex, ChosenBy::nothing};
    if (count == 0) {
        failure.because(kGenericError) << "Vulkan: no device found (the loader works, but no driver reports one)";
        return {kNoIndex, ChosenBy::nothing};
    }
    if (*request.device) return pick_named(offers, count, request, wish, failure);
    if (!check_gpu_text(request, failure)) return {kNoIndex, ChosenBy::nothing};
    if (request.gpu >= 0 || wish != DeviceWish::any) return pick_nth(offers, count, request, wish, failure);

    uint32_t best = kNoIndex, best_rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t rank = rank_of(offers[i]);
        if (rank > best_rank) best = i, best_rank = rank;
    }
    if (best != kNoIndex) return {best, best_rank > 1 ? ChosenBy::first_gpu : ChosenBy::first_device};
    Text text = failure.because(kGenericError);
    text << "Vulkan: no device can compute";
    list_offers(text, offers, count, false);
    return {kNoIndex, ChosenBy::nothing};
}

inline const char *chosen_by_name(ChosenBy by) {
    switch (by) {
    case ChosenBy::index: return "HL_VK_DEVICE, index";
    case ChosenBy::uuid: return "HL_VK_DEVICE, UUID";
    case ChosenBy::name: return "HL_VK_DEVICE, name";
    case ChosenBy::gpu_index: return "HL_GPU_DEVICE";
    case ChosenBy::type: return "HL_VK_DEVICE_TYPE";
    case ChosenBy::first_gpu: return "the first GPU";
    case ChosenBy::first_device: return "no GPU is there";
    default: return "nothing";
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_CHOICE_H
