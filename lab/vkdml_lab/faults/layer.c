/* A Vulkan layer whose functions fail when they are told to, while the process runs.

   faults_arm says which call of which function fails, counted from then on, and with what. A call that fails does not reach the
   driver. A device that reported VK_ERROR_DEVICE_LOST stays lost: its submissions and waits fail from then on; other devices work.
   Functions that return nothing cannot fail, and are passed on. Dispatches are counted. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 1024 /* instances, and devices, that are there at once */

/* Each function's name, its parameters, and their names. The first one says whose function it is. */
#define OF_INSTANCES(F) \
    F(vkEnumeratePhysicalDevices, (VkInstance on, uint32_t *count, VkPhysicalDevice *found), (on, count, found)) \
    F(vkEnumerateDeviceExtensionProperties, \
      (VkPhysicalDevice on, const char *layer, uint32_t *count, VkExtensionProperties *found), (on, layer, count, found))

#define CREATES(F, name, info, made) \
    F(name, (VkDevice on, const info *i, const VkAllocationCallbacks *a, made *m), (on, i, a, m))

#define OF_DEVICES(F) \
    CREATES(F, vkCreateBuffer, VkBufferCreateInfo, VkBuffer) \
    CREATES(F, vkAllocateMemory, VkMemoryAllocateInfo, VkDeviceMemory) \
    CREATES(F, vkCreateShaderModule, VkShaderModuleCreateInfo, VkShaderModule) \
    CREATES(F, vkCreateDescriptorSetLayout, VkDescriptorSetLayoutCreateInfo, VkDescriptorSetLayout) \
    CREATES(F, vkCreateDescriptorPool, VkDescriptorPoolCreateInfo, VkDescriptorPool) \
    CREATES(F, vkCreatePipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout) \
    CREATES(F, vkCreatePipelineCache, VkPipelineCacheCreateInfo, VkPipelineCache) \
    CREATES(F, vkCreateCommandPool, VkCommandPoolCreateInfo, VkCommandPool) \
    CREATES(F, vkCreateFence, VkFenceCreateInfo, VkFence) \
    F(vkCreateComputePipelines, (VkDevice on, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *i, \
                                 const VkAllocationCallbacks *a, VkPipeline *m), (on, cache, count, i, a, m)) \
    F(vkBindBufferMemory, (VkDevice on, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize at), (on, buffer, memory, at)) \
    F(vkMapMemory, (VkDevice on, VkDeviceMemory memory, VkDeviceSize at, VkDeviceSize size, VkMemoryMapFlags flags, void **data), \
      (on, memory, at, size, flags, data)) \
    F(vkAllocateDescriptorSets, (VkDevice on, const VkDescriptorSetAllocateInfo *i, VkDescriptorSet *m), (on, i, m)) \
    F(vkAllocateCommandBuffers, (VkDevice on, const VkCommandBufferAllocateInfo *i, VkCommandBuffer *m), (on, i, m)) \
    F(vkBeginCommandBuffer, (VkCommandBuffer on, const VkCommandBufferBeginInfo *i), (on, i)) \
    F(vkResetCommandBuffer, (VkCommandBuffer on, VkCommandBufferResetFlags flags), (on, flags)) \
    F(vkEndCommandBuffer, (VkCommandBuffer on), (on)) \
    F(vkQueueSubmit, (VkQueue on, uint32_t count, const VkSubmitInfo *submits, VkFence fence), (on, count, submits, fence)) \
    F(vkQueueWaitIdle, (VkQueue on), (on)) \
    F(vkGetFenceStatus, (VkDevice on, VkFence fence), (on, fence)) \
    F(vkResetFences, (VkDevice on, uint32_t count, const VkFence *fences), (on, count, fences)) \
    F(vkWaitForFences, (VkDevice on, uint32_t count, const VkFence *fences, VkBool32 all, uint64_t timeout), \
      (on, count, fences, all, timeout))

#define IDENTIFIER(name, ...) ID_##name,
#define NAME(name, ...) #name,
enum { ID_vkCreateInstance, ID_vkCreateDevice, OF_INSTANCES(IDENTIFIER) OF_DEVICES(IDENTIFIER) FUNCTIONS };
static const char *const names[] = { "vkCreateInstance", "vkCreateDevice", OF_INSTANCES(NAME) OF_DEVICES(NAME) };

/* What is below this layer, for an instance or a device. All handles that belong to it begin with the same pointer. */
#define NEXT(name, ...) PFN_##name name;
struct instance {
    void *key;
    PFN_vkGetInstanceProcAddr get; PFN_vkDestroyInstance destroy; PFN_vkCreateDevice create_device; OF_INSTANCES(NEXT)
};
struct device {
    void *key; VkDevice handle; bool lost;
    PFN_vkGetDeviceProcAddr get; PFN_vkDestroyDevice destroy; PFN_vkDeviceWaitIdle wait_idle; PFN_vkCmdDispatch dispatch;
    OF_DEVICES(NEXT)
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct instance instances[MOST];
static struct device devices[MOST];
static struct { int function; unsigned call; VkResult result; bool repeats; unsigned fired; } armed = { .function = -1 };
static unsigned counts[FUNCTIONS], dispatches;

#define FIND(table, wanted) \
    void *key = (wanted); \
    for (size_t at = 0; at < MOST; ++at) if (table[at].key == key) return &table[at]; \
    return NULL;
static struct instance *free_instance(void) { FIND(instances, NULL) }
static struct device *free_device(void) { FIND(devices, NULL) }
static struct instance *instance_of(const void *handle) { FIND(instances, *(void *const *)handle) }
static struct device *device_of(const void *handle) { FIND(devices, *(void *const *)handle) }

/* Which call of a function fails, and whether all later ones do. None does if no function has the name. */
EXPORT void faults_arm(const char *function, unsigned call, int result, int repeats) {
    pthread_mutex_lock(&mutex);
    armed.function = -1;
    for (int id = 0; id < FUNCTIONS; ++id) if (!strcmp(names[id], function)) armed.function = id;
    armed.call = call, armed.result = (VkResult)result, armed.repeats = repeats, armed.fired = 0;
    memset(counts, 0, sizeof counts);
    pthread_mutex_unlock(&mutex);
}

/* How many calls have failed since then. */
EXPORT unsigned faults_fired(void) { return armed.fired; }

/* The functions' names in order, NULL after the last, and how often each was called since then. */
EXPORT const char *faults_name(unsigned function) { return function < FUNCTIONS ? names[function] : NULL; }
EXPORT unsigned faults_count(unsigned function) { return counts[function]; }

/* How many dispatches were recorded, by any device. */
EXPORT unsigned faults_dispatches(void) { return dispatches; }

/* Whether this call fails, and with what. */
static bool fails(int function, struct device *device, VkResult *result) {
    bool waits = function == ID_vkQueueSubmit || function == ID_vkQueueWaitIdle || function == ID_vkGetFenceStatus ||
                 function == ID_vkWaitForFences;
    bool is_due, is_lost;
    pthread_mutex_lock(&mutex);
    unsigned call = ++counts[function];
    is_due = function == armed.function && (call == armed.call || (armed.repeats && call > armed.call));
    if (is_due) *result = armed.result, ++armed.fired;
    is_lost = device && (device->lost || (is_due && *result == VK_ERROR_DEVICE_LOST));
    pthread_mutex_unlock(&mutex);
    if (is_lost && !device->lost) {
        device->wait_idle(device->handle); /* nothing runs on a lost device */
        device->lost = true;
    }
    if (is_lost && waits) *result = VK_ERROR_DEVICE_LOST;
    return is_due || (is_lost && waits);
}

#define WRAP(name, parameters, arguments, table) \
    static VKAPI_ATTR VkResult VKAPI_CALL may_fail_##name parameters { \
        VkResult result; \
        return fails(ID_##name, DEVICE_##table(on), &result) ? result : table##_of(on)->name arguments; \
    }
#define DEVICE_instance(on) NULL
#define DEVICE_device(on) device_of(on)
#define WRAP_OF_INSTANCE(name, parameters, arguments) WRAP(name, parameters, arguments, instance)
#define WRAP_OF_DEVICE(name, parameters, arguments) WRAP(name, parameters, arguments, device)
OF_INSTANCES(WRAP_OF_INSTANCE)
OF_DEVICES(WRAP_OF_DEVICE)

/* The loader's link in a chain of structures: what is below this layer. */
#define LINK(kind, type) \
    kind *link = (kind *)info->pNext; \
    while (link && !(link->sType == type && link->function == VK_LAYER_LINK_INFO)) link = (kind *)link->pNext; \
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;

static VKAPI_ATTR VkResult VKAPI_CALL may_fail_vkCreateInstance(
        const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator, VkInstance *made) {
    VkResult result;
    if (fails(ID_vkCreateInstance, NULL, &result)) return result;
    LINK(VkLayerInstanceCreateInfo, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO)
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    result = ((PFN_vkCreateInstance)get(NULL, "vkCreateInstance"))(info, allocator, made);
    if (result != VK_SUCCESS) return result;
    pthread_mutex_lock(&mutex);
    struct instance *instance = free_instance();
    if (instance) {
        instance->get = get;
        instance->destroy = (PFN_vkDestroyInstance)get(*made, "vkDestroyInstance");
        instance->create_device = (PFN_vkCreateDevice)get(*made, "vkCreateDevice");
#define LOAD(name, ...) instance->name = (PFN_##name)get(*made, #name);
        OF_INSTANCES(LOAD)
#undef LOAD
        instance->key = *(void **)*made;
    }
    pthread_mutex_unlock(&mutex);
    return instance ? VK_SUCCESS : VK_ERROR_TOO_MANY_OBJECTS;
}

static VKAPI_ATTR void VKAPI_CALL passed_vkDestroyInstance(VkInstance on, const VkAllocationCallbacks *allocator) {
    struct instance *instance = instance_of(on);
    PFN_vkDestroyInstance destroy = instance->destroy;
    instance->key = NULL;
    destroy(on, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL may_fail_vkCreateDevice(
        VkPhysicalDevice on, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator, VkDevice *made) {
    VkResult result;
    if (fails(ID_vkCreateDevice, NULL, &result)) return result;
    LINK(VkLayerDeviceCreateInfo, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO)
    PFN_vkGetDeviceProcAddr get = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    result = instance_of(on)->create_device(on, info, allocator, made);
    if (result != VK_SUCCESS) return result;
    pthread_mutex_lock(&mutex);
    struct device *device = free_device();
    if (device) {
        device->handle = *made, device->lost = false, device->get = get;
        device->destroy = (PFN_vkDestroyDevice)get(*made, "vkDestroyDevice");
        device->wait_idle = (PFN_vkDeviceWaitIdle)get(*made, "vkDeviceWaitIdle");
        device->dispatch = (PFN_vkCmdDispatch)get(*made, "vkCmdDispatch");
#define LOAD(name, ...) device->name = (PFN_##name)get(*made, #name);
        OF_DEVICES(LOAD)
#undef LOAD
        device->key = *(void **)*made;
    }
    pthread_mutex_unlock(&mutex);
    return device ? VK_SUCCESS : VK_ERROR_TOO_MANY_OBJECTS;
}

static VKAPI_ATTR void VKAPI_CALL passed_vkDestroyDevice(VkDevice on, const VkAllocationCallbacks *allocator) {
    struct device *device = device_of(on);
    PFN_vkDestroyDevice destroy = device->destroy;
    device->key = NULL;
    destroy(on, allocator);
}

static VKAPI_ATTR void VKAPI_CALL counted_vkCmdDispatch(VkCommandBuffer on, uint32_t x, uint32_t y, uint32_t z) {
    __atomic_fetch_add(&dispatches, 1, __ATOMIC_RELAXED);
    device_of(on)->dispatch(on, x, y, z);
}

#define OURS(name, function) if (!strcmp(wanted, #name)) return (PFN_vkVoidFunction)function;
#define MAY_FAIL(name, ...) OURS(name, may_fail_##name)

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_of_device(VkDevice on, const char *wanted) {
    OURS(vkGetDeviceProcAddr, get_of_device)
    OURS(vkDestroyDevice, passed_vkDestroyDevice)
    OURS(vkCmdDispatch, counted_vkCmdDispatch)
    OF_DEVICES(MAY_FAIL)
    return device_of(on)->get(on, wanted);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_of_instance(VkInstance on, const char *wanted) {
    OURS(vkGetInstanceProcAddr, get_of_instance)
    OURS(vkCreateInstance, may_fail_vkCreateInstance)
    OURS(vkDestroyInstance, passed_vkDestroyInstance)
    OURS(vkCreateDevice, may_fail_vkCreateDevice)
    OURS(vkGetDeviceProcAddr, get_of_device)
    OURS(vkDestroyDevice, passed_vkDestroyDevice)
    OURS(vkCmdDispatch, counted_vkCmdDispatch)
    OF_INSTANCES(MAY_FAIL)
    OF_DEVICES(MAY_FAIL)
    return on ? instance_of(on)->get(on, wanted) : NULL;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiated) {
    negotiated->loaderLayerInterfaceVersion = 2;
    negotiated->pfnGetInstanceProcAddr = get_of_instance;
    negotiated->pfnGetDeviceProcAddr = get_of_device;
    negotiated->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
