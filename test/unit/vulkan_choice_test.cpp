// vulkan_choice.h: the choice of device, for machines we do not own.

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "vulkan_choice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

using namespace halide_vulkan;

namespace {

DeviceOffer offer(const char *name, VkPhysicalDeviceType type, uint8_t uuid, VkQueueFlags flags) {
    DeviceOffer o = {};
    strncpy(o.properties.deviceName, name, sizeof(o.properties.deviceName) - 1);
    o.properties.deviceType = type;
    o.families[0].queueFlags = flags;
    o.families[0].queueCount = 1;
    o.family_count = 1;
    o.has_uuid = uuid != 0;
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) o.uuid[i] = (uint8_t)(uuid + i);
    return o;
}

constexpr VkQueueFlags kGraphics = VK_QUEUE_GRAPHICS_BIT, kCompute = VK_QUEUE_COMPUTE_BIT;

const DeviceOffer kCpu = offer("llvmpipe (LLVM 15.0.6)", VK_PHYSICAL_DEVICE_TYPE_CPU, 0x10, kGraphics | kCompute);
const DeviceOffer kIntegrated = offer("Intel(R) Iris", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, 0x20, kCompute);
const DeviceOffer kDiscrete =
    offer("NVIDIA GeForce RTX 4090", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, 0xa0, kGraphics | kCompute);
const DeviceOffer kTwin =
    offer("NVIDIA GeForce RTX 4090", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, 0xb0, kGraphics | kCompute);
const DeviceOffer kVirtual = offer("Virtio-GPU Venus", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, 0, kCompute);
const DeviceOffer kDisplayOnly = offer("Framebuffer", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, 0xc0, kGraphics);

const std::vector<DeviceOffer> kAll = {kCpu, kIntegrated, kDiscrete, kTwin, kDisplayOnly};

// One request, told in the order in which the options win.
struct Ask {
    std::string device, type;
    int gpu = -1;
    std::string gpu_text = "";  // of HL_GPU_DEVICE
};

struct Answer {
    uint32_t index;
    ChosenBy by;
    std::string message;
};

Answer pick(const std::vector<DeviceOffer> &offers, const Ask &ask) {
    Failure failure;
    const DeviceRequest request = {ask.device.c_str(), ask.type.c_str(), ask.gpu, ask.gpu_text.c_str()};
    const DeviceChoice choice = pick_device(offers.data(), (uint32_t)offers.size(), request, failure);
    EXPECT_EQ(choice.index == kNoIndex, failure.failed()) << failure.message;
    return {choice.index, choice.by, failure.failed() ? failure.message : ""};
}

void refused(const std::vector<DeviceOffer> &offers, const Ask &ask, const std::vector<std::string> &parts) {
    const Answer answer = pick(offers, ask);
    EXPECT_EQ(answer.index, kNoIndex);
    for (const std::string &part : parts)
        EXPECT_NE(answer.message.find(part), std::string::npos) << "'" << part << "' is not in: " << answer.message;
}

}  // namespace

TEST(Choice, WhoAsksForNothingGetsAGpuAndTheCpuLast) {
    EXPECT_EQ(pick(kAll, {}).index, 1u);
    EXPECT_EQ(pick(kAll, {}).by, ChosenBy::first_gpu);
    EXPECT_EQ(pick({kCpu, kVirtual}, {}).index, 1u);
    EXPECT_EQ(pick({kVirtual, kDiscrete}, {}).index, 1u);
    EXPECT_EQ(pick({kDisplayOnly, kCpu}, {}).index, 1u) << "a device that cannot compute is none";
    EXPECT_EQ(pick({kCpu}, {}).by, ChosenBy::first_device);
    refused({kDisplayOnly}, {}, {"no device can compute", "Framebuffer (discrete-gpu, cannot compute)"});
    refused({}, {}, {"no device found"});
}

TEST(Choice, ATypeIsMetOrRefused) {
    EXPECT_EQ(pick(kAll, {"", "cpu"}).index, 0u);
    EXPECT_EQ(pick(kAll, {"", "gpu"}).index, 1u);
    EXPECT_EQ(pick(kAll, {"", "integrated-gpu"}).index, 1u);
    EXPECT_EQ(pick(kAll, {"", "discrete-gpu"}).index, 2u);
    EXPECT_EQ(pick({kCpu, kVirtual}, {"", "virtual-gpu"}).by, ChosenBy::type);
    refused({kCpu}, {"", "discrete-gpu"},
            {"'discrete-gpu'", "HL_VK_DEVICE_TYPE", "there is 1 device: 0 = llvmpipe (LLVM 15.0.6) (cpu)"});
    refused({kCpu}, {"", "gpu"}, {"'gpu'", "llvmpipe"});
    refused(kAll, {"", "banana"}, {"banana", "discrete-gpu"});
    refused({kDisplayOnly}, {"", "discrete-gpu"}, {"cannot compute"});
}

// Halide reads the variable as atoi does, so what it makes of "abc" is 0.
TEST(Choice, HlGpuDeviceIsANumber) {
    for (const char *wrong : {"abc", "-", "+", "x1", " ", "- 1", "GPU-1"}) {
        SCOPED_TRACE(wrong);
        refused(kAll, {"", "", 0, wrong}, {std::string("HL_GPU_DEVICE is '") + wrong + "'", "whole number"});
        EXPECT_EQ(pick(kAll, {"", "", 1, wrong}).index, 2u) << "halide_set_gpu_device wins over the variable";
        EXPECT_EQ(pick(kAll, {"", "", -1, wrong}).index, 1u);
        EXPECT_EQ(pick(kAll, {"iris", "", 0, wrong}).index, 1u) << "HL_VK_DEVICE wins over both";
    }
    for (const char *wrong : {"1x", "1 ", "1.5", "1,2", "+1st"})
        refused(kAll, {"", "", 1, wrong}, {std::string("HL_GPU_DEVICE is '") + wrong + "'"});
    refused(kAll, {"", "", -1, "-1x"}, {"'-1x'"});
    refused(kAll, {"", "", 1, "4294967297"}, {"'4294967297'"});
    refused(kAll, {"", "", 0, std::string(5000, 'a')}, {"'" + std::string(60, 'a') + "...'", "whole number"});
    for (const char *right : {"1", "+1", "01", " 1", "\t1"}) EXPECT_EQ(pick(kAll, {"", "", 1, right}).index, 2u);
    EXPECT_EQ(pick(kAll, {"", "", -1, "-1"}).by, ChosenBy::first_gpu);
    EXPECT_EQ(pick(kAll, {"", "", 2, "1"}).index, 3u) << "set to another than the variable says";
    EXPECT_EQ(pick(kAll, {"", "", 0, ""}).index, 1u);
}

// What was asked for may be of any length: the message still says what there is.
TEST(Choice, LongRequestsLeaveRoomForTheAnswer) {
    const std::string text(1000, 'b');
    refused({kCpu}, {text}, {"is no device's index or UUID", "0 = llvmpipe"});
    refused({kCpu}, {"", text}, {"integrated-gpu, virtual-gpu or cpu"});
    refused({kCpu}, {"", "gpu" + text}, {"HL_VK_DEVICE_TYPE", "0 = llvmpipe"});
    refused({kCpu}, {"llvm", "gpu" + text}, {"HL_VK_DEVICE_TYPE", "0 = llvmpipe"});
    refused({kCpu}, {"", "cpu" + text, 7}, {"is 1; there is 1 device", "0 = llvmpipe"});
}

TEST(Choice, AnIndexIsThatOfTheList) {
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT_EQ(pick(kAll, {std::to_string(i)}).index, i);
        EXPECT_EQ(pick(kAll, {std::to_string(i)}).by, ChosenBy::index);
    }
    EXPECT_EQ(pick(kAll, {"03"}).index, 3u);
    refused(kAll, {"4"}, {"HL_VK_DEVICE is '4', which cannot compute"});
    refused(kAll, {"5"}, {"HL_VK_DEVICE is '5', which is no device's index", "there are 5 devices", "4 = Framebuffer"});
    refused({kCpu}, {"99"}, {"'99'"});
    refused({kCpu}, {"-1"}, {"'-1'", "nor a part of a name"});
}

TEST(Choice, ANameIsAPartInAnyCase) {
    EXPECT_EQ(pick(kAll, {"nvidia"}).index, 2u);
    EXPECT_EQ(pick(kAll, {"GEFORCE rtx"}).by, ChosenBy::name);
    EXPECT_EQ(pick(kAll, {"iris"}).index, 1u);
    EXPECT_EQ(pick(kAll, {"llvmpipe"}).index, 0u) << "who names the CPU device gets it";
    EXPECT_EQ(pick(kAll, {"4090"}).index, 2u) << "a number of more than two digits is a name";
    EXPECT_EQ(pick(kAll, {"I"}).index, 1u) << "of several, the first GPU, not the CPU device before it";
    refused(kAll, {"radeon"}, {"'radeon'", "nor a part of a name", "2 = NVIDIA GeForce RTX 4090 (discrete-gpu)"});
    refused(kAll, {"framebuffer"}, {"cannot compute"});
    refused({}, {"nvidia"}, {"no device found"});
    // The end of a name is not overrun by a longer part.
    refused({kIntegrated}, {"Iris Xe"}, {"'Iris Xe'"});
}

TEST(Choice, AUuidInAnySpelling) {
    const char *twin = "b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbebf";
    EXPECT_EQ(pick(kAll, {twin}).index, 3u) << "what tells two of a kind apart";
    EXPECT_EQ(pick(kAll, {twin}).by, ChosenBy::uuid);
    EXPECT_EQ(pick(kAll, {std::string("GPU-") + twin}).index, 3u) << "as nvidia-smi writes it";
    EXPECT_EQ(pick(kAll, {"B0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF"}).index, 3u);
    refused(kAll, {"b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbec0"},
            {"no device's UUID", "(cpu, 10111213-1415-1617-1819-1a1b1c1d1e1f)"});
    refused({kVirtual}, {twin}, {"no device's UUID", "Venus (virtual-gpu)"});
    // One digit less is no UUID, so it is looked for as a name.
    refused(kAll, {"b0b1b2b3-b4b5-b6b7-b8b9-babbbcbdbeb"}, {"nor a part of a name"});
    refused(kAll, {std::string(twin) + "00"}, {"nor a part of a name"});
}

TEST(Choice, HlGpuDeviceCountsGpusAndNeverTheCpu) {
    EXPECT_EQ(pick(kAll, {"", "", 0}).index, 1u);
    EXPECT_EQ(pick(kAll, {"", "", 1}).index, 2u);
    EXPECT_EQ(pick(kAll, {"", "", 2}).index, 3u);
    EXPECT_EQ(pick(kAll, {"", "", 0}).by, ChosenBy::gpu_index);
    EXPECT_EQ(pick({kCpu, kVirtual}, {"", "", 0}).index, 1u);
    refused(kAll, {"", "", 3}, {"HL_GPU_DEVICE", "is 3, but the number of GPUs is 3"});
    refused({kCpu}, {"", "", 0}, {"is 0, but the number of GPUs is 0", "HL_VK_DEVICE_TYPE=cpu allows", "llvmpipe"});
    EXPECT_EQ(pick({kCpu}, {"", "", -1}).index, 0u);
    // With a type, that type is counted.
    EXPECT_EQ(pick(kAll, {"", "discrete-gpu", 1}).index, 3u);
    EXPECT_EQ(pick(kAll, {"", "cpu", 0}).index, 0u);
    refused(kAll, {"", "cpu", 1}, {"number of devices of type 'cpu' is 1"});
}

TEST(Choice, HlVkDeviceWinsAndMustAgreeWithTheType) {
    EXPECT_EQ(pick(kAll, {"0", "", 1}).index, 0u);
    EXPECT_EQ(pick(kAll, {"nvidia", "discrete-gpu"}).index, 2u);
    EXPECT_EQ(pick({kCpu, kIntegrated, kDiscrete}, {"i", "discrete-gpu"}).index, 2u);
    refused(kAll, {"0", "gpu"}, {"HL_VK_DEVICE is '0'", "not of the type 'gpu'", "HL_VK_DEVICE_TYPE"});
    refused(kAll, {"llvmpipe", "gpu"}, {"not of the type 'gpu'"});
    refused(kAll, {"0", "banana"}, {"banana"});
}

// A message has 512 characters; with many devices its end is lost, its reason not.
TEST(Choice, ManyDevices) {
    const std::vector<DeviceOffer> many(60, kDiscrete);
    EXPECT_EQ(pick(many, {"59"}).index, 59u);
    refused(many, {"radeon"}, {"HL_VK_DEVICE is 'radeon'", "there are 60 devices"});
}
