// A plugin execution provider for onnxruntime: what it asks of a provider is handed to Python (provider.py), tensors as numpy's
// arrays. Of onnxruntime's C API only what is used is declared here: its tables of functions grow at their ends alone, so that a
// function's place in them is the same in all versions.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace py = pybind11;

struct Status;  // an error, or null
using Table = void* const*;
constexpr uint32_t VERSION = 23;  // of the C API: the first one with all that is here
static Table ort, ort_ep;         // OrtApi and OrtEpApi

template <class Result = Status*, class... Arguments> static Result call(Table table, int place, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(table[place])(arguments...);
}

// Places in OrtApi. Where a list is got, its length is at the place before
enum { CREATE_STATUS = 0, STATUS_TEXT = 2, TENSOR_DATA = 51, TENSOR_OF_TYPE = 55, ELEMENT_TYPE = 60, RANK = 61, SIZES = 62, TYPE_AND_SHAPE = 65,
       OUTPUT_COUNT = 89, INPUT = 90, OUTPUT = 91, RELEASE_STATUS = 93, RELEASE_TYPE_AND_SHAPE = 99, READ_ATTRIBUTE = 272,
       VALUE_NAME = 289, VALUE_TYPE = 290, PAIRS = 298, RELEASE_PAIRS = 300, DEVICE_TYPE = 307, GET_EP_API = 317, INITIALIZER = 326,
       IS_CONSTANT = 331, GRAPH_NAME = 333, DOMAINS = 337, NODES = 345, PARENT_NODE = 346, NODE_NAME = 349, NODE_OPERATOR = 350,
       NODE_DOMAIN = 351, NODE_VERSION = 352, NODE_INPUTS = 354, NODE_OUTPUTS = 356, IMPLICIT_INPUTS = 358, ATTRIBUTES = 360,
       ATTRIBUTE_TYPE = 363, ATTRIBUTE_NAME = 364, NODE_PROVIDER = 368, SESSION_CONFIG = 379 };
enum { CREATE_DEVICE = 0, ADD_NODES_TO_FUSE = 2 };                  // places in OrtEpApi
enum { INT = 1, INTS, FLOAT, FLOATS, STRING, STRINGS };             // OrtOpAttrType

static Status* status_of(const std::string& text) { return call(ort, CREATE_STATUS, 1, text.c_str()); }

static void check(Status* status) {
  if (!status) return;
  std::string text = call<const char*>(ort, STATUS_TEXT, status);
  call<void>(ort, RELEASE_STATUS, status);
  throw std::runtime_error(text);
}

// Of Python, never released, as they live as long as the process
static py::object *make_provider, *message_of;  // of a dictionary of options; an exception's message, by which it is found again
static py::list* dtypes;                        // by ONNX's number of a type, None where the provider takes none
static py::set* operators;                      // the names of those that the device may have

// A thread that Python has ended is unwound where it asks for the GIL, through C++, which aborts. So Python's end waits for
// running calls, and calls of other threads after it wait until the process is gone.
static std::atomic<int> running{0};
static std::atomic<bool> is_ending{false};
static std::thread::id ender;
struct Running { Running() { running++; } ~Running() { running--; } };
template <class F> static Status* in_python(F function) {
  if (Running here; !is_ending.load() || std::this_thread::get_id() == ender) {
    if (!Py_IsInitialized()) return status_of("Python has ended");
    py::gil_scoped_acquire gil;
    try { function(); return nullptr; }
    catch (py::error_already_set& error) {
      if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
      try { return status_of(py::str((*message_of)(error.value()))); }
      catch (...) { return status_of("an error without a message"); }
    }
    catch (std::exception& error) { return status_of(error.what()); }
  }
  for (;;) pause();
}

static void drop(PyObject* object) {
  if (!Py_IsInitialized() || is_ending.load()) return;
  py::gil_scoped_acquire gil;
  Py_DECREF(object);
}

// Running

static py::object dtype_of(int kind) { return size_t(kind) < dtypes->size() ? py::object((*dtypes)[kind]) : py::none(); }

static std::vector<py::ssize_t> sizes_of(const void* info, int* kind) {
  size_t rank;
  call(ort, ELEMENT_TYPE, info, kind);
  call(ort, RANK, info, &rank);
  std::vector<py::ssize_t> sizes(rank);
  call(ort, SIZES, info, sizes.data(), rank);
  return sizes;
}

static py::array array_of(const void* value, bool is_writeable) {
  void *info, *data;
  int kind;
  check(call(ort, TYPE_AND_SHAPE, value, &info));
  auto sizes = sizes_of(info, &kind);
  call<void>(ort, RELEASE_TYPE_AND_SHAPE, info);
  check(call(ort, TENSOR_DATA, value, &data));
  py::object dtype = dtype_of(kind);
  if (dtype.is_none()) throw std::runtime_error("a tensor of an unknown type");
  static char none;  // where an empty tensor has no memory
  py::array array(py::reinterpret_borrow<py::dtype>(dtype), sizes, data ? data : &none, py::none());
  if (!is_writeable) py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

struct Compiled {  // OrtNodeComputeInfo, and the DeviceRun (runs.py) that `compute` calls. constants, fed: places of inputs
  uint32_t version;
  void *create, *compute, *release;
  PyObject* run;
  std::vector<size_t> constants, fed;
  bool is_adopted;
};

static py::list inputs_at(const std::vector<size_t>& places, void* context) {
  py::list inputs;
  for (size_t place : places) {
    const void* value;
    check(call(ort, INPUT, context, place, &value));
    inputs.append(array_of(value, false));
  }
  return inputs;
}

static Status* compute(Compiled* node, void*, void* context) {
  return in_python([&] {
    py::handle run(node->run);
    if (!node->is_adopted) run.attr("adopt")(inputs_at(node->constants, context));
    node->is_adopted = true;
    size_t count;
    check(call(ort, OUTPUT_COUNT, context, &count));
    py::list results = run(inputs_at(node->fed, context));
    if (results.size() != count) throw std::runtime_error("another number of results than of outputs");
    for (size_t i = 0; i < count; i++) {
      py::array result = py::array::ensure(results[i], py::array::c_style);
      void* value;
      check(call(ort, OUTPUT, context, i, result.shape(), size_t(result.ndim()), &value));
      py::array output = array_of(value, true);
      if (!output.dtype().equal(result.dtype()) || output.nbytes() != result.nbytes())
        throw std::runtime_error("a result of another type or size than its output");
      if (result.nbytes()) std::memcpy(output.mutable_data(), result.data(), result.nbytes());
    }
  });
}

// Graphs

template <class T = const void*> static std::vector<T> list(int place, const void* owner) {
  size_t count;
  check(call(ort, place - 1, owner, &count));
  std::vector<T> found(count);
  if (count) check(call(ort, place, owner, found.data(), count));
  return found;
}

static py::str text(int place, const void* owner) {
  const char* found;
  check(call(ort, place, owner, &found));  // texts that are not UTF-8 stay different ones
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(found, std::strlen(found), "surrogateescape"));
}

static py::list names(int place, const void* node) {
  py::list found;
  for (auto value : list(place, node)) found.append(value ? text(VALUE_NAME, value) : py::str());
  return found;
}

// None for what is no number, no text and no list of them, and for one without a value
static py::object attribute(const void* of_node) {
  int kind;
  size_t size = 0;
  std::vector<char> data(64);
  check(call(ort, ATTRIBUTE_TYPE, of_node, &kind));
  if (kind < INT || kind > STRINGS) return py::none();
  auto read = [&] { return call(ort, READ_ATTRIBUTE, of_node, kind, static_cast<void*>(data.data()), data.size(), &size); };
  while (Status* status = read()) {
    call<void>(ort, RELEASE_STATUS, status);
    if (size <= data.size()) return py::none();  // it has no value
    data.resize(size);
  }
  if (kind == STRING) return py::bytes(data.data(), size);
  py::list found;
  for (size_t at = 0; at < size;) {
    if (kind <= INTS) found.append(*reinterpret_cast<int64_t*>(&data[at])), at += 8;
    else if (kind <= FLOATS) found.append(*reinterpret_cast<float*>(&data[at])), at += 4;
    else found.append(py::bytes(&data[at])), at += std::strlen(&data[at]) + 1;
  }
  return kind % 2 ? py::object(found[0]) : py::object(found);
}

// A value's ONNX type, sizes (-1: they vary), whether it is constant, and its array if numpy has its type, of at most `most` bytes
static py::tuple value(const void* info, size_t most) {
  const void *type = nullptr, *tensor = nullptr, *found = nullptr;
  int kind = 0;
  size_t bytes = 8;
  bool is_constant = false;
  check(call(ort, VALUE_TYPE, info, &type));
  if (type) check(call(ort, TENSOR_OF_TYPE, type, &tensor));
  auto sizes = tensor ? sizes_of(tensor, &kind) : std::vector<py::ssize_t>();
  for (auto size : sizes)
    if (bytes <= most) bytes *= size_t(size);
  check(call(ort, IS_CONSTANT, info, &is_constant));
  if (is_constant && bytes <= most && !dtype_of(kind).is_none()) check(call(ort, INITIALIZER, info, &found));
  return py::make_tuple(kind, py::tuple(py::cast(sizes)), is_constant, found ? py::object(array_of(found, false).attr("copy")()) : py::none());
}

// A list of nodes, as tuples of what GraphNode has, without attributes where the device has no such operator, and a dictionary of
// values by name. None where two names are alike up to a 0, which ends the texts that onnxruntime gives
static py::object describe(const void* graph, size_t most) {
  py::list nodes;
  py::dict values;
  size_t count;
  check(call(ort, DOMAINS - 1, graph, &count));
  std::vector<const char*> domains(count);
  std::vector<int64_t> versions(count);
  check(call(ort, DOMAINS, graph, domains.data(), versions.data(), count));
  if (std::set<std::string>(domains.begin(), domains.end()).size() < count) return py::none();
  std::set<const void*> seen;
  for (auto node : list(NODES, graph)) {
    py::dict attributes;
    int version;
    check(call(ort, NODE_VERSION, node, &version));
    if (operators->contains(text(NODE_OPERATOR, node)))
      for (auto one : list(ATTRIBUTES, node)) attributes[text(ATTRIBUTE_NAME, one)] = attribute(one);
    nodes.append(py::make_tuple(text(NODE_NAME, node), text(NODE_OPERATOR, node), text(NODE_DOMAIN, node), version,
                                names(NODE_INPUTS, node), names(NODE_OUTPUTS, node), names(IMPLICIT_INPUTS, node), attributes,
                                text(NODE_PROVIDER, node)));
    for (int place : {NODE_INPUTS, NODE_OUTPUTS})
      for (auto info : list(place, node)) {
        if (!info || !seen.insert(info).second) continue;
        py::str name = text(VALUE_NAME, info);
        if (!py::len(name) || values.contains(name)) return py::none();
        values[name] = value(info, most);
      }
  }
  return py::make_tuple(nodes, values);
}

// The provider: OrtEp and OrtEpFactory, with null for what a provider may leave out

constexpr size_t SMALL = 4096;  // bytes of constants that are shown to `claim`
struct Provider { uint32_t version; void* functions[31]; PyObject* python; };
struct Factory { uint32_t version; void* functions[31]; };
template <class F> static void* function(F* pointer) { return reinterpret_cast<void*>(pointer); }
static const char* provider_name(const void*) { return "VkdmlExecutionProvider"; }

static Status* claim(Provider* provider, const void* graph, void* info) {
  return in_python([&] {
    const void* parent;
    check(call(ort, PARENT_NODE, graph, &parent));
    auto nodes = list(NODES, graph);
    py::list heads;
    for (auto node : nodes)
      heads.append(py::make_tuple(text(NODE_NAME, node), text(NODE_OPERATOR, node), text(NODE_DOMAIN, node), text(NODE_PROVIDER, node)));
    py::cpp_function described([=] { return describe(graph, SMALL); });
    auto name = parent ? text(GRAPH_NAME, graph) : py::str();
    for (auto group : py::list(py::handle(provider->python).attr("claim")(name, heads, described))) {
      std::vector<const void*> members;
      for (auto place : group) members.push_back(nodes.at(place.cast<size_t>()));
      struct { uint32_t version; bool drops_constants; } options{VERSION, false};
      check(call(ort_ep, ADD_NODES_TO_FUSE, info, static_cast<const void* const*>(members.data()), members.size(), &options));
    }
  });
}

static Status* create_state(Compiled* node, void*, void** state) { *state = node; return nullptr; }
static void nothing(void*, void*) {}

static Status* compile(Provider* provider, const void** graphs, const void** fused, size_t count, Compiled** made, void**) {
  return in_python([&] {
    for (size_t i = 0; i < count; i++) {
      py::object run = py::handle(provider->python).attr("compile")(describe(graphs[i], SIZE_MAX), names(NODE_INPUTS, fused[i]),
                                                                     names(NODE_OUTPUTS, fused[i]));
      auto constants = run.attr("constant_places").cast<std::vector<size_t>>(), fed = run.attr("fed_places").cast<std::vector<size_t>>();
      made[i] = new Compiled{VERSION, function(create_state), function(compute), function(nothing), run.inc_ref().ptr(), constants, fed, false};
    }
  });
}

static void release_compiled(Provider*, Compiled** nodes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    drop(nodes[i]->run);
    delete nodes[i];
  }
}

static Status* create(Factory*, const void* const*, const void* const*, size_t, const void* options, const void*, Provider** made) {
  return in_python([&] {
    void* pairs;
    const char *const *keys, *const *values;
    size_t count;
    py::dict found;
    check(call(ort, SESSION_CONFIG, options, &pairs));
    call<void>(ort, PAIRS, static_cast<const void*>(pairs), &keys, &values, &count);
    for (size_t i = 0; i < count; i++) found[keys[i]] = values[i];
    call<void>(ort, RELEASE_PAIRS, pairs);
    *made = new Provider{VERSION, {function(provider_name), function(claim), function(compile), function(release_compiled)},
                         (*make_provider)(found).release().ptr()};
  });
}

static void release(Factory*, Provider* provider) {
  drop(provider->python);
  delete provider;
}

// onnxruntime may not know the GPU: the provider is listed with the CPU, which is always there
static Status* devices(Factory* factory, const void* const* found, size_t count, void** made, size_t, size_t* made_count) {
  *made_count = 0;
  for (size_t i = 0; i < count && !*made_count; i++)
    if (call<int>(ort, DEVICE_TYPE, found[i]) == 0) {
      if (Status* status = call(ort_ep, CREATE_DEVICE, factory, found[i], nullptr, nullptr, made)) return status;
      *made_count = 1;
    }
  return nullptr;
}

static const char* vendor(const void*) { return "vkdml"; }
static uint32_t vendor_id(const void*) { return 0; }
static const char* version(const void*) { return "0.1.0"; }
static Status* no_allocator(void*, const void*, const void*, void** made) { *made = nullptr; return nullptr; }
static Status* no_transfer(void*, void** made) { *made = nullptr; return nullptr; }
static bool no(const void*) { return false; }

#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED Status* CreateEpFactories(const char*, Table base, const void*, Factory** made, size_t, size_t* count) {
  ort = call<Table>(base, 0, VERSION);
  *count = ort ? 1 : 0;
  if (!ort) return nullptr;  // an onnxruntime that is too old has said so
  ort_ep = call<Table>(ort, GET_EP_API);
  // Never freed: sessions that outlive the registration release their providers through it
  static Factory factory{VERSION, {function(provider_name), function(vendor), function(devices), function(create), function(release),
                                   function(vendor_id), function(version), nullptr, function(no_allocator), function(nothing),
                                   function(no_transfer), function(no)}};
  *made = &factory;
  return nullptr;
}
EXPORTED Status* ReleaseEpFactory(Factory*) { return nullptr; }

PYBIND11_MODULE(_provider, module) {
  module.def("set", [](py::object make, py::object message, py::list types, py::set names) {
    make_provider = new py::object(make);
    message_of = new py::object(message);
    dtypes = new py::list(types);
    operators = new py::set(names);
  });
  module.def("end", [] {  // at Python's end
    ender = std::this_thread::get_id();
    is_ending = true;
    py::gil_scoped_release others;
    for (int i = 0; i < 500 && running.load(); i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
}
