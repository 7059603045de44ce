// Each way in which a Vulkan program waits for a GPU, and a GPU for its program: `run` does one on a queue of a family. It
// returns NULL where what was waited for was done, else what was wrong.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

enum { WORDS = 1 << 16, ROUNDS = 4 };
#define SECOND 1000000000ull
#define TYPE(of) .sType = VK_STRUCTURE_TYPE_##of
#define NEED(call) do { \
        const VkResult is = call; \
        if (is) return snprintf(said, sizeof said, "%s: %d", #call, is), said; \
    } while (0)
#define IS(condition) do { if (!(condition)) return #condition; } while (0)
static char said[300];
static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue, other_queue;
static VkCommandPool pool;
static VkBuffer buffer;
static VkDeviceMemory memory;
static VkEvent event;
static VkQueryPool queries;
static volatile uint32_t *words;
static PFN_vkGetFenceFdKHR get_fence_file;
static PFN_vkGetSemaphoreFdKHR get_semaphore_file;
static PFN_vkImportSemaphoreFdKHR import_semaphore_file;

static const char *open_device(uint32_t family) {
    const VkApplicationInfo application = {TYPE(APPLICATION_INFO), .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo of_instance = {TYPE(INSTANCE_CREATE_INFO), .pApplicationInfo = &application};
    VkInstance instance;
    NEED(vkCreateInstance(&of_instance, NULL, &instance));
    uint32_t count = 1;
    vkEnumeratePhysicalDevices(instance, &count, &physical);
    VkQueueFamilyProperties families[8];
    count = 8, vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    const uint32_t queue_count = families[family].queueCount < 2 ? 1 : 2;
    const VkDeviceQueueCreateInfo of_queues = {TYPE(DEVICE_QUEUE_CREATE_INFO), .queueFamilyIndex = family,
                                               .queueCount = queue_count, .pQueuePriorities = (float[]){1, 1}};
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {TYPE(PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES),
                                                           .timelineSemaphore = 1};
    const char *extensions[] = {"VK_KHR_external_fence_fd", "VK_KHR_external_semaphore_fd"};
    const VkDeviceCreateInfo of_device = {TYPE(DEVICE_CREATE_INFO), &timelines, .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &of_queues, .enabledExtensionCount = 2, .ppEnabledExtensionNames = extensions};
    NEED(vkCreateDevice(physical, &of_device, NULL, &device));
    vkGetDeviceQueue(device, family, 0, &queue), vkGetDeviceQueue(device, family, queue_count - 1, &other_queue);
    get_fence_file = (PFN_vkGetFenceFdKHR)vkGetDeviceProcAddr(device, "vkGetFenceFdKHR");
    get_semaphore_file = (PFN_vkGetSemaphoreFdKHR)vkGetDeviceProcAddr(device, "vkGetSemaphoreFdKHR");
    import_semaphore_file = (PFN_vkImportSemaphoreFdKHR)vkGetDeviceProcAddr(device, "vkImportSemaphoreFdKHR");
    const VkCommandPoolCreateInfo of_pool = {TYPE(COMMAND_POOL_CREATE_INFO), .queueFamilyIndex = family};
    NEED(vkCreateCommandPool(device, &of_pool, NULL, &pool));
    const VkBufferCreateInfo of_buffer = {TYPE(BUFFER_CREATE_INFO), .size = 4 * WORDS,
                                          .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT};
    NEED(vkCreateBuffer(device, &of_buffer, NULL, &buffer));
    VkMemoryRequirements needs;
    VkPhysicalDeviceMemoryProperties kinds;
    vkGetBufferMemoryRequirements(device, buffer, &needs), vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    uint32_t kind = 0;
    const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;  // where the driver fills buffers by kernels
    while (!(needs.memoryTypeBits >> kind & 1) || (kinds.memoryTypes[kind].propertyFlags & seen) != seen) kind++;
    const VkMemoryAllocateInfo of_memory = {TYPE(MEMORY_ALLOCATE_INFO), .allocationSize = needs.size, .memoryTypeIndex = kind};
    NEED(vkAllocateMemory(device, &of_memory, NULL, &memory));
    NEED(vkBindBufferMemory(device, buffer, memory, 0));
    NEED(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, (void **)&words));
    const VkEventCreateInfo of_event = {TYPE(EVENT_CREATE_INFO)};
    NEED(vkCreateEvent(device, &of_event, NULL, &event));
    const VkQueryPoolCreateInfo of_queries = {TYPE(QUERY_POOL_CREATE_INFO), .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = 2};
    NEED(vkCreateQueryPool(device, &of_queries, NULL, &queries));
    return NULL;
}

enum { SETS = 1, WAITS = 2, TAKES_TIMES = 4, RESETS = 8 };

// Commands that fill the buffer's first half, several times, the last time with a number; then, behind an event, the second
// from it
static VkCommandBuffer commands(uint32_t number, int events) {
    const VkCommandBufferAllocateInfo of_commands = {TYPE(COMMAND_BUFFER_ALLOCATE_INFO), .commandPool = pool,
        .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begins = {TYPE(COMMAND_BUFFER_BEGIN_INFO)};
    const VkMemoryBarrier all = {TYPE(MEMORY_BARRIER), NULL, VK_ACCESS_MEMORY_WRITE_BIT,
                                 VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    const VkPipelineStageFlags transfer = VK_PIPELINE_STAGE_TRANSFER_BIT, every = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkCommandBuffer made;
    vkAllocateCommandBuffers(device, &of_commands, &made), vkBeginCommandBuffer(made, &begins);
    if (events & RESETS) vkCmdResetQueryPool(made, queries, 0, 2);
    if (events & TAKES_TIMES) vkCmdWriteTimestamp(made, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 0);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        vkCmdFillBuffer(made, buffer, 0, 2 * WORDS, n == ROUNDS - 1 ? number : ~number);
        vkCmdPipelineBarrier(made, transfer, transfer, 0, 1, &all, 0, NULL, 0, NULL);
    }
    if (events & TAKES_TIMES) vkCmdWriteTimestamp(made, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries, 1);
    if (events & SETS) vkCmdSetEvent(made, event, transfer);
    if (events & WAITS) vkCmdWaitEvents(made, 1, &event, events & SETS ? transfer : VK_PIPELINE_STAGE_HOST_BIT, transfer, 1,
        &all, 0, NULL, 0, NULL);
    const VkBufferCopy copied = {0, 2 * WORDS, 2 * WORDS};
    vkCmdCopyBuffer(made, buffer, buffer, 1, &copied);
    vkCmdPipelineBarrier(made, every, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0, NULL, 0, NULL);
    vkEndCommandBuffer(made);
    return made;
}

static int is_done(uint32_t number) {
    for (uint32_t n = 0; n < WORDS; n += WORDS / 2)
        if (words[n] != number || words[n + WORDS / 2 - 1] != number) return 0;
    return 1;
}

static VkFence fence(void) {
    const VkFenceCreateInfo of_fence = {TYPE(FENCE_CREATE_INFO)};
    VkFence made;
    vkCreateFence(device, &of_fence, NULL, &made);
    return made;
}

static VkSemaphore semaphore(int is_timeline) {
    const VkSemaphoreTypeCreateInfo kind = {TYPE(SEMAPHORE_TYPE_CREATE_INFO), .semaphoreType = is_timeline};
    const VkSemaphoreCreateInfo of_semaphore = {TYPE(SEMAPHORE_CREATE_INFO), &kind};
    VkSemaphore made;
    vkCreateSemaphore(device, &of_semaphore, NULL, &made);
    return made;
}

// Numbers are of timelines. NULL where there is nothing to execute, to wait for or to signal
static VkResult submit(VkQueue to, VkCommandBuffer what, VkSemaphore waits, uint64_t from, VkSemaphore signals,
    uint64_t number, VkFence told) {
    const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const VkTimelineSemaphoreSubmitInfo numbers = {TYPE(TIMELINE_SEMAPHORE_SUBMIT_INFO), NULL, !!waits, &from, !!signals,
        &number};
    const VkSubmitInfo one = {TYPE(SUBMIT_INFO), &numbers, !!waits, &waits, &all, !!what, &what, !!signals, &signals};
    return vkQueueSubmit(to, 1, &one, told);
}

static VkResult wait_for(VkSemaphore timeline, uint64_t number, uint64_t time) {
    const VkSemaphoreWaitInfo wait = {TYPE(SEMAPHORE_WAIT_INFO), .semaphoreCount = 1, .pSemaphores = &timeline,
        .pValues = &number};
    return vkWaitSemaphores(device, &wait, time);
}

static VkResult signal_timeline(VkSemaphore timeline, uint64_t number) {
    const VkSemaphoreSignalInfo signal = {TYPE(SEMAPHORE_SIGNAL_INFO), NULL, timeline, number};
    return vkSignalSemaphore(device, &signal);
}

static const char *fences(void) {
    VkFence one = fence(), never = fence();
    NEED(submit(queue, commands(1, 0), NULL, 0, NULL, 0, one));
    IS(vkWaitForFences(device, 2, (VkFence[]){one, never}, 1, SECOND / 10) == VK_TIMEOUT);
    NEED(vkWaitForFences(device, 2, (VkFence[]){one, never}, 0, 60 * SECOND));
    IS(is_done(1)); IS(!vkGetFenceStatus(device, one)); IS(vkGetFenceStatus(device, never) == VK_NOT_READY);
    NEED(vkResetFences(device, 1, &one));
    IS(vkGetFenceStatus(device, one) == VK_NOT_READY);
    NEED(submit(queue, commands(2, 0), NULL, 0, NULL, 0, NULL));
    NEED(vkQueueSubmit(queue, 0, NULL, one));  // tells of what was submitted before
    while (vkGetFenceStatus(device, one)) usleep(1000);
    IS(is_done(2));
    return NULL;
}

static const char *idle_queue(void) {
    NEED(vkQueueWaitIdle(queue));
    for (uint32_t n = 1; n < 4; n++) {
        NEED(submit(queue, commands(n, 0), NULL, 0, NULL, 0, NULL));
        NEED(vkQueueWaitIdle(queue));
        IS(is_done(n));
    }
    return NULL;
}

static const char *idle_device(void) {
    NEED(submit(queue, commands(1, 0), NULL, 0, NULL, 0, NULL));
    NEED(submit(other_queue, commands(2, 0), NULL, 0, NULL, 0, NULL));
    NEED(vkDeviceWaitIdle(device));
    IS(is_done(2));
    return NULL;
}

static const char *semaphores(void) {
    VkSemaphore one = semaphore(0), two = semaphore(0);
    VkFence told = fence();
    NEED(submit(queue, commands(1, 0), NULL, 0, one, 0, NULL));
    NEED(submit(other_queue, commands(2, 0), one, 0, two, 0, NULL));
    NEED(submit(queue, NULL, two, 0, NULL, 0, told));  // has nothing to execute
    NEED(vkWaitForFences(device, 1, &told, 1, 60 * SECOND));
    IS(is_done(2));
    return NULL;
}

static const char *timelines(void) {
    VkSemaphore line = semaphore(1);
    uint64_t number = 0;
    NEED(submit(queue, commands(1, 0), NULL, 0, line, 5, NULL));
    NEED(submit(other_queue, commands(2, 0), line, 5, line, 7, NULL));
    NEED(wait_for(line, 6, 60 * SECOND));  // between them
    IS(is_done(2));
    NEED(vkGetSemaphoreCounterValue(device, line, &number));
    IS(number == 7); IS(wait_for(line, 8, SECOND / 10) == VK_TIMEOUT);
    NEED(signal_timeline(line, 9));
    NEED(wait_for(line, 8, 60 * SECOND));
    return NULL;
}

static const char *timeline_of_the_host(void) {  // signals what was submitted before
    VkSemaphore line = semaphore(1);
    VkFence told = fence();
    NEED(submit(queue, commands(1, 0), line, 3, NULL, 0, told));
    NEED(submit(other_queue, commands(2, 0), NULL, 0, NULL, 0, NULL));
    IS(vkWaitForFences(device, 1, &told, 1, SECOND / 5) == VK_TIMEOUT);
    NEED(signal_timeline(line, 3));
    NEED(vkWaitForFences(device, 1, &told, 1, 60 * SECOND));
    IS(is_done(1));
    return NULL;
}

static const char *events(void) {
    VkFence told = fence();
    NEED(submit(queue, commands(1, SETS | WAITS), NULL, 0, NULL, 0, told));
    NEED(vkWaitForFences(device, 1, &told, 1, 60 * SECOND));
    IS(is_done(1)); IS(vkGetEventStatus(device, event) == VK_EVENT_SET);
    return NULL;
}

static const char *event_of_the_host(void) {
    VkFence told = fence();
    NEED(submit(queue, commands(1, WAITS), NULL, 0, NULL, 0, told));
    IS(vkWaitForFences(device, 1, &told, 1, SECOND / 5) == VK_TIMEOUT); IS(!is_done(1));
    NEED(vkSetEvent(device, event));
    NEED(vkWaitForFences(device, 1, &told, 1, 60 * SECOND));
    IS(is_done(1));
    return NULL;
}

static const char *event_of_nobody(void) {  // ends, and is a finding
    NEED(submit(queue, commands(1, WAITS), NULL, 0, NULL, 0, NULL));
    NEED(vkQueueWaitIdle(queue));
    return NULL;
}

static const char *times(void) {
    uint64_t taken[2] = {0};
    NEED(submit(queue, commands(1, RESETS), NULL, 0, NULL, 0, NULL));
    NEED(vkQueueWaitIdle(queue));
    NEED(submit(queue, commands(2, TAKES_TIMES), NULL, 0, NULL, 0, NULL));
    NEED(vkGetQueryPoolResults(device, queries, 0, 2, sizeof taken, taken, 8,
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    IS(taken[0] && taken[1] > taken[0]); IS(words[0] == 2);
    NEED(vkQueueWaitIdle(queue));
    return NULL;
}

static const char *files(void) {  // of fences: the emulator gives those of what is done, and no others
    const VkExportFenceCreateInfo exported = {TYPE(EXPORT_FENCE_CREATE_INFO), NULL,
        VK_EXTERNAL_FENCE_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkFenceCreateInfo of_fence = {TYPE(FENCE_CREATE_INFO), &exported};
    VkFence one;
    int file = -1;
    NEED(vkCreateFence(device, &of_fence, NULL, &one));
    const VkFenceGetFdInfoKHR asked = {TYPE(FENCE_GET_FD_INFO_KHR), NULL, one, VK_EXTERNAL_FENCE_HANDLE_TYPE_OPAQUE_FD_BIT};
    IS(get_fence_file(device, &asked, &file) < 0);
    const VkExportSemaphoreCreateInfo of_file = {TYPE(EXPORT_SEMAPHORE_CREATE_INFO), NULL,
        VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT};
    const VkSemaphoreCreateInfo of_semaphore = {TYPE(SEMAPHORE_CREATE_INFO), &of_file};
    VkSemaphore first, second = semaphore(0);
    NEED(vkCreateSemaphore(device, &of_semaphore, NULL, &first));
    NEED(submit(queue, commands(1, 0), NULL, 0, first, 0, NULL));
    const VkSemaphoreGetFdInfoKHR from = {TYPE(SEMAPHORE_GET_FD_INFO_KHR), NULL, first,
        VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT};
    NEED(get_semaphore_file(device, &from, &file));
    const VkImportSemaphoreFdInfoKHR to = {TYPE(IMPORT_SEMAPHORE_FD_INFO_KHR), NULL, second, VK_SEMAPHORE_IMPORT_TEMPORARY_BIT,
                                           VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT, file};
    NEED(import_semaphore_file(device, &to));
    one = fence();
    NEED(submit(other_queue, commands(2, 0), second, 0, NULL, 0, one));
    NEED(vkWaitForFences(device, 1, &one, 1, 60 * SECOND));
    IS(is_done(2));
    return NULL;
}

const char *run(const char *way, uint32_t family) {
    static const struct { const char *name; const char *(*does)(void); } ways[] = {
        {"fences", fences}, {"idle queue", idle_queue}, {"idle device", idle_device}, {"semaphores", semaphores},
            {"timelines", timelines},
        {"timeline of the host", timeline_of_the_host}, {"events", events}, {"event of the host", event_of_the_host},
        {"event of nobody", event_of_nobody}, {"times", times}, {"files", files}};
    const char *wrong = open_device(family);
    for (unsigned n = 0; !wrong && n < sizeof ways / sizeof *ways; n++)
        if (!strcmp(ways[n].name, way)) return ways[n].does();
    return wrong ? wrong : "no such way";
}
