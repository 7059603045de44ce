/* A Vulkan layer whose functions fail on request, while the process runs, and that counts calls and what is submitted.

   faults_arm says which call of which function fails, counted from then on, and with what. A call that fails does not reach the
   driver. A device that reported VK_ERROR_DEVICE_LOST stays lost: its submissions and waits fail from then on; other devices work.
   Functions that return nothing cannot fail, and are passed on. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 1024 /* instances, and devices, that are there at once */
#define MOST_TALLIES 65536 /* handles of command buffers */

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

/* Functions that record into a command buffer, and what each adds to the buffer's tally. */
#define OF_COMMAND_BUFFERS(F) \
    F(vkCmdDispatch, (VkCommandBuffer on, uint32_t x, uint32_t y, uint32_t z), (on, x, y, z), ++held[DISPATCHES];) \
    F(vkCmdPipelineBarrier, \
      (VkCommandBuffer on, VkPipelineStageFlags before, VkPipelineStageFlags after, VkDependencyFlags flags, \
       uint32_t m, const VkMemoryBarrier *memory, uint32_t b, const VkBufferMemoryBarrier *buffers, \
       uint32_t i, const VkImageMemoryBarrier *images), \
      (on, before, after, flags, m, memory, b, buffers, i, images), ++held[BARRIERS];) \
    F(vkCmdCopyBuffer, (VkCommandBuffer on, VkBuffer from, VkBuffer to, uint32_t count, const VkBufferCopy *parts), \
      (on, from, to, count, parts), \
      held[COPIES] += count; for (uint32_t at = 0; at < count; ++at) held[COPIED_BYTES] += parts[at].size;)

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
    PFN_vkGetDeviceProcAddr get; PFN_vkDestroyDevice destroy; PFN_vkDeviceWaitIdle wait_idle; OF_DEVICES(NEXT)
    OF_COMMAND_BUFFERS(NEXT)
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct instance instances[MOST];
static struct device devices[MOST];
static struct { int function; unsigned call; VkResult result; bool repeats; unsigned fired; } armed = { .function = -1 };
static unsigned counts[FUNCTIONS];

/* What a command buffer holds; what all that were submitted since faults_arm held. */
enum { DISPATCHES, BARRIERS, COPIES, COPIED_BYTES, KINDS };
struct tally { const void *key; uint64_t held[KINDS]; };
static struct tally tallies[MOST_TALLIES], submitted;

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
    memset(&submitted, 0, sizeof submitted);
    pthread_mutex_unlock(&mutex);
}

/* How many calls have failed since then. */
EXPORT unsigned faults_fired(void) { return armed.fired; }

/* The functions' names in order, NULL after the last, and how often each was called since then. */
EXPORT const char *faults_name(unsigned function) { return function < FUNCTIONS ? names[function] : NULL; }
EXPORT unsigned faults_count(unsigned function) { return counts[function]; }

/* What was submitted since then: dispatches, barriers, copies and their bytes. */
EXPORT uint64_t faults_submitted(unsigned at) { return submitted.held[at]; }

/* The tally of a command buffer, which calls with the mutex held share. */
static struct tally *tally_of(const void *handle) {
    size_t at = ((uintptr_t)handle >> 4) % MOST_TALLIES;
    while (tallies[at].key && tallies[at].key != handle) at = (at + 1) % MOST_TALLIES;
    tallies[at].key = handle;
    return &tallies[at];
}

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

#define COUNT(name, parameters, arguments, add) \
    static VKAPI_ATTR void VKAPI_CALL counted_##name parameters { \
        pthread_mutex_lock(&mutex); \
        uint64_t *held = tally_of(on)->held; \
        add \
        pthread_mutex_unlock(&mutex); \
        device_of(on)->name arguments; \
    }
OF_COMMAND_BUFFERS(COUNT)

static VKAPI_ATTR VkResult VKAPI_CALL counted_vkBeginCommandBuffer(VkCommandBuffer on, const VkCommandBufferBeginInfo *info) {
    pthread_mutex_lock(&mutex);
    *tally_of(on) = (struct tally){ .key = on };
    pthread_mutex_unlock(&mutex);
    return may_fail_vkBeginCommandBuffer(on, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL counted_vkQueueSubmit(VkQueue on, uint32_t count, const VkSubmitInfo *submits, VkFence fence) {
    pthread_mutex_lock(&mutex);
    for (uint32_t at = 0; at < count; ++at)
        for (uint32_t buffer = 0; buffer < submits[at].commandBufferCount; ++buffer)
            for (int kind = 0; kind < KINDS; ++kind)
                submitted.held[kind] += tally_of(submits[at].pCommandBuffers[buffer])->held[kind];
    pthread_mutex_unlock(&mutex);
    return may_fail_vkQueueSubmit(on, count, submits, fence);
}

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
#define LOAD(name, ...) device->name = (PFN_##name)get(*made, #name);
        OF_DEVICES(LOAD)
        OF_COMMAND_BUFFERS(LOAD)
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

#define OURS(name, function) if (!strcmp(wanted, #name)) return (PFN_vkVoidFunction)function;
#define MAY_FAIL(name, ...) OURS(name, may_fail_##name)
#define COUNTED(name, ...) OURS(name, counted_##name)
#define ALL_COUNTED COUNTED(vkBeginCommandBuffer) COUNTED(vkQueueSubmit) OF_COMMAND_BUFFERS(COUNTED)

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_of_device(VkDevice on, const char *wanted) {
    OURS(vkGetDeviceProcAddr, get_of_device)
    OURS(vkDestroyDevice, passed_vkDestroyDevice)
    ALL_COUNTED
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
    OF_INSTANCES(MAY_FAIL)
    ALL_COUNTED
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
