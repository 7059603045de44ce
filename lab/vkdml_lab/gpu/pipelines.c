// Makes compute pipelines the way Kompute does, and says what the driver's compiler tells of each. Nothing is ever submitted.
//
// Reads lines of SPIRV_FILE STORAGE_BUFFERS PUSH_BYTES SUBGROUP_SIZE FOLDER (0: any size), and answers each with one line of JSON:
//   {"ms": 12.3, "result": 0, "executables": [{"name": "...", "subgroup_size": 32, "statistics": {"Code size": 1234}}]}
// ms is processor time. result is Vulkan's, and negative where the driver refused. FOLDER gets the driver's internal
// representations, a file each.
#define _POSIX_C_SOURCE 199309L
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

enum { MOST_BINDINGS = 32, MOST_EXECUTABLES = 8, MOST_ENTRIES = 64, MOST_EXTENSIONS = 1024, MOST_FAMILIES = 32 };

static VkDevice device;
static PFN_vkGetPipelineExecutablePropertiesKHR get_executables;
static PFN_vkGetPipelineExecutableStatisticsKHR get_statistics;
static PFN_vkGetPipelineExecutableInternalRepresentationsKHR get_representations;

static void need(VkResult result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "pipelines: %s returned %d\n", what, result);
        exit(1);
    }
}

static bool knows(VkPhysicalDevice physical, const char *extension)
{
    static VkExtensionProperties known[MOST_EXTENSIONS];
    uint32_t count = MOST_EXTENSIONS;
    vkEnumerateDeviceExtensionProperties(physical, NULL, &count, known);
    while (count--)
        if (strcmp(known[count].extensionName, extension) == 0) return true;
    return false;
}

static uint32_t compute_family(VkPhysicalDevice physical)
{
    VkQueueFamilyProperties families[MOST_FAMILIES];
    uint32_t count = MOST_FAMILIES;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    for (uint32_t family = 0; family < count; ++family)
        if (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) return family;
    fprintf(stderr, "pipelines: the device has no queue for compute\n");
    exit(1);
}

// The first device, with Vulkan 1.1 and the features of kernels that it may have; the other extension only makes it talk
static void open_device(void)
{
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
    const VkInstanceCreateInfo of_instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                              .pApplicationInfo = &application};
    VkInstance instance;
    need(vkCreateInstance(&of_instance, NULL, &instance), "vkCreateInstance");
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    uint32_t count = 1;
    need(vkEnumeratePhysicalDevices(instance, &count, &physical), "vkEnumeratePhysicalDevices");
    if (count == 0 || !knows(physical, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
        fprintf(stderr, "pipelines: %s\n", count ? "the driver tells nothing of its pipelines" : "no device");
        exit(1);
    }
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1,
                                           .queueFamilyIndex = compute_family(physical), .pQueuePriorities = &priority};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT, .subgroupSizeControl = VK_TRUE};
    const bool has_sizes = knows(physical, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    VkPhysicalDevice16BitStorageFeatures halves = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &halves};
    vkGetPhysicalDeviceFeatures2(physical, &features);
    halves = (VkPhysicalDevice16BitStorageFeatures){.sType = halves.sType, .pNext = has_sizes ? &sizes : NULL,
                                                    .storageBuffer16BitAccess = halves.storageBuffer16BitAccess};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR tells = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = &halves, .pipelineExecutableInfo = VK_TRUE};
    const char *const extensions[] = {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME,
                                      VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME};
    const VkDeviceCreateInfo of_device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &tells,
                                          .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
                                          .enabledExtensionCount = has_sizes ? 2 : 1, .ppEnabledExtensionNames = extensions};
    need(vkCreateDevice(physical, &of_device, NULL, &device), "vkCreateDevice");
    get_executables = (PFN_vkGetPipelineExecutablePropertiesKHR)vkGetDeviceProcAddr(
        device, "vkGetPipelineExecutablePropertiesKHR");
    get_statistics = (PFN_vkGetPipelineExecutableStatisticsKHR)vkGetDeviceProcAddr(
        device, "vkGetPipelineExecutableStatisticsKHR");
    get_representations = (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)vkGetDeviceProcAddr(
        device, "vkGetPipelineExecutableInternalRepresentationsKHR");
}

static uint32_t *read_words(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint32_t *words = malloc(*bytes);
    const size_t got = fread(words, 1, *bytes, file);
    fclose(file);
    if (got == *bytes) return words;
    free(words);
    return NULL;
}

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; ++text)
        if (*text == '"' || *text == '\\') printf("\\%c", *text);
        else putchar((unsigned char)*text < ' ' ? ' ' : *text);
    putchar('"');
}

static void print_statistics(const VkPipelineExecutableInfoKHR *executable)
{
    static VkPipelineExecutableStatisticKHR entries[MOST_ENTRIES];
    for (uint32_t i = 0; i < MOST_ENTRIES; ++i)
        entries[i] = (VkPipelineExecutableStatisticKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    uint32_t count = MOST_ENTRIES;
    get_statistics(device, executable, &count, entries);
    for (uint32_t i = 0; i < count; ++i) {
        const VkPipelineExecutableStatisticValueKHR *value = &entries[i].value;
        if (i) printf(", ");
        print_text(entries[i].name);
        switch (entries[i].format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: printf(": %d", value->b32 != 0); break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: printf(": %lld", (long long)value->i64); break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR: printf(": %g", value->f64); break;
        default: printf(": %llu", (unsigned long long)value->u64);
        }
    }
}

static void write_representations(const VkPipelineExecutableInfoKHR *executable, const char *folder)
{
    static VkPipelineExecutableInternalRepresentationKHR entries[MOST_ENTRIES];
    for (uint32_t i = 0; i < MOST_ENTRIES; ++i)
        entries[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
    uint32_t count = MOST_ENTRIES;
    get_representations(device, executable, &count, entries);
    for (uint32_t i = 0; i < count; ++i) entries[i].pData = malloc(entries[i].dataSize + 1);
    get_representations(device, executable, &count, entries);
    for (uint32_t i = 0; i < count; ++i) {
        char path[4096 + 32];
        snprintf(path, sizeof path, "%s/%u.%u.txt", folder, executable->executableIndex, i);
        FILE *file = fopen(path, "w");
        if (file) {
            fprintf(file, "%s\n%s", entries[i].name, entries[i].isText ? (const char *)entries[i].pData : "");
            fclose(file);
        }
        free(entries[i].pData);
    }
}

static void print_executables(VkPipeline pipeline, const char *folder)
{
    const VkPipelineInfoKHR of_pipeline = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutablePropertiesKHR executables[MOST_EXECUTABLES];
    for (uint32_t i = 0; i < MOST_EXECUTABLES; ++i)
        executables[i] = (VkPipelineExecutablePropertiesKHR){.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    uint32_t count = MOST_EXECUTABLES;
    get_executables(device, &of_pipeline, &count, executables);
    for (uint32_t i = 0; i < count; ++i) {
        const VkPipelineExecutableInfoKHR executable = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                                        .pipeline = pipeline, .executableIndex = i};
        printf("%s{\"name\": ", i ? ", " : "");
        print_text(executables[i].name);
        printf(", \"subgroup_size\": %u, \"statistics\": {", executables[i].subgroupSize);
        print_statistics(&executable);
        printf("}}");
        write_representations(&executable, folder);
    }
}

static VkPipelineLayout make_layout(uint32_t buffers, uint32_t push_bytes, VkDescriptorSetLayout *set)
{
    VkDescriptorSetLayoutBinding bindings[MOST_BINDINGS];
    for (uint32_t i = 0; i < buffers; ++i)
        bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i, .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                     .descriptorCount = 1, .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    const VkDescriptorSetLayoutCreateInfo of_set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                    .bindingCount = buffers, .pBindings = bindings};
    need(vkCreateDescriptorSetLayout(device, &of_set, NULL, set), "vkCreateDescriptorSetLayout");
    const VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = push_bytes};
    const VkPipelineLayoutCreateInfo of_layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1,
                                                  .pSetLayouts = set, .pushConstantRangeCount = push_bytes ? 1 : 0,
                                                  .pPushConstantRanges = &push};
    VkPipelineLayout layout;
    need(vkCreatePipelineLayout(device, &of_layout, NULL, &layout), "vkCreatePipelineLayout");
    return layout;
}

static double milliseconds(void)  // of the processor, in all threads: other programs do not count
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void make_pipeline(const uint32_t *words, size_t bytes, uint32_t buffers, uint32_t push_bytes,
                          uint32_t subgroup_size, const char *folder)
{
    VkDescriptorSetLayout set;
    const VkPipelineLayout layout = make_layout(buffers, push_bytes, &set);
    const VkShaderModuleCreateInfo of_module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes,
                                                .pCode = words};
    VkShaderModule module;
    need(vkCreateShaderModule(device, &of_module, NULL, &module), "vkCreateShaderModule");
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = subgroup_size};
    const VkComputePipelineCreateInfo of_pipeline = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .pNext = subgroup_size ? &size : NULL,
                  .module = module, .pName = "main"},
        .layout = layout};
    VkPipeline pipeline = VK_NULL_HANDLE;
    const double started = milliseconds();
    const VkResult result = vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &of_pipeline, NULL, &pipeline);
    printf("{\"ms\": %.1f, \"result\": %d, \"executables\": [", milliseconds() - started, result);
    if (result == VK_SUCCESS) print_executables(pipeline, folder);
    printf("]}\n");
    fflush(stdout);
    vkDestroyPipeline(device, pipeline, NULL);
    vkDestroyShaderModule(device, module, NULL);
    vkDestroyPipelineLayout(device, layout, NULL);
    vkDestroyDescriptorSetLayout(device, set, NULL);
}

int main(void)
{
    open_device();
    char spirv[4096], folder[4096];
    unsigned buffers, push_bytes, subgroup_size;
    while (scanf("%4095s %u %u %u %4095s", spirv, &buffers, &push_bytes, &subgroup_size, folder) == 5) {
        size_t bytes;
        uint32_t *words = read_words(spirv, &bytes);
        if (!words || buffers > MOST_BINDINGS) {
            fprintf(stderr, "pipelines: %s with %u buffers cannot be read\n", spirv, buffers);
            return 1;
        }
        make_pipeline(words, bytes, buffers, push_bytes, subgroup_size, folder);
        free(words);
    }
    return 0;
}
