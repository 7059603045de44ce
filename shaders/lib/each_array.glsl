// For values that lie in private memory and are indexed by constants alone: as many arrays as there may be, by number. One would
// do, but for LLVM: for each array of a shader, llvmpipe's coroutine pass looks at every pair of its uses.
#define EACH_ARRAY(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
