// All invocations of the workgroup see what any of them stored before. One subgroup needs less than a workgroup of several:
// llvmpipe runs a shader with a workgroup's barrier at half the speed.
#extension GL_KHR_memory_scope_semantics : require

void state_barrier()
{
    if (WORKGROUP == LANES) {
        subgroupBarrier();
        return;
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}
