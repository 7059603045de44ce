/* A driver as MoltenVK is one, made of the driver in the environment variable WRAPPED_DRIVER: its devices have
   VK_KHR_portability_subset, and none can be opened without it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))
#define SUBSET "VK_KHR_portability_subset"

static PFN_vkEnumerateDeviceExtensionProperties list_extensions;
static PFN_vkCreateDevice create_device;

static PFN_vkVoidFunction wrapped(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen(getenv("WRAPPED_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    return driver ? (PFN_vkVoidFunction)dlsym(driver, name) : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL with_subset(
        VkPhysicalDevice on, const char *layer, uint32_t *count, VkExtensionProperties *found) {
    uint32_t room = *count, others = 0;
    VkResult result = list_extensions(on, layer, &others, NULL);
    *count = others + 1;
    if (result != VK_SUCCESS || !found) return result;
    if (room <= others) return *count = 0, VK_INCOMPLETE;
    found[others] = (VkExtensionProperties){ SUBSET, 1 };
    return list_extensions(on, layer, &others, found);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_with_subset(
        VkPhysicalDevice on, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator, VkDevice *made) {
    const char *others[64];
    VkDeviceCreateInfo without = *info;
    without.enabledExtensionCount = 0, without.ppEnabledExtensionNames = others;
    for (uint32_t at = 0; at < info->enabledExtensionCount && at < 64; ++at)
        if (strcmp(info->ppEnabledExtensionNames[at], SUBSET))
            others[without.enabledExtensionCount++] = info->ppEnabledExtensionNames[at];
    if (without.enabledExtensionCount + 1 != info->enabledExtensionCount) return VK_ERROR_EXTENSION_NOT_PRESENT;
    return create_device(on, &without, allocator, made);
}

static PFN_vkVoidFunction get(const char *getter, VkInstance on, const char *name) {
    PFN_vkVoidFunction found = ((PFN_vkGetInstanceProcAddr)wrapped(getter))(on, name);
    if (found && !strcmp(name, "vkEnumerateDeviceExtensionProperties")) {
        list_extensions = (PFN_vkEnumerateDeviceExtensionProperties)found;
        return (PFN_vkVoidFunction)with_subset;
    }
    if (found && !strcmp(name, "vkCreateDevice")) {
        create_device = (PFN_vkCreateDevice)found;
        return (PFN_vkVoidFunction)create_with_subset;
    }
    return found;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance on, const char *name) {
    return get("vk_icdGetInstanceProcAddr", on, name);
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance on, const char *name) {
    return get("vk_icdGetPhysicalDeviceProcAddr", on, name);
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    return ((VkResult (*)(uint32_t *))wrapped("vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
