"""What NVIDIA's driver says, in the words of public logs; this project's own machines have no GPU.

Sources: NVIDIA's *GPU Memory Error Management* and *Xid Errors*, the issue trackers of NVIDIA's
open kernel modules, of gpud and of NVSentinel.
"""

from datetime import datetime, timedelta

BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REBOOT = (
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2"
    " (Node Reboot Required)"
)
RESET = (
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1"
    " (GPU Reset Required)"
)
NO_MORE = (
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to"
    " 0x0 (None)"
)
DOUBLE_BIT = (
    "NVRM: Xid (PCI:0000:3b:00): 48, pid=7194, name=python3, An uncorrectable double bit error"
    " (DBE) has been detected on GPU in the framebuffer at partition 6, subpartition 1."
)
CONTAINED = (
    "NVRM: Xid (PCI:0000:3b:00): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
)
CONTAINED_MIG = (
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9)."
    " RST: No, D-RST: No"
)
UNCONTAINED = (
    "NVRM: Xid (PCI:0000:3b:00): 95, pid=7062, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
)
REMAPPED = (
    "NVRM: Xid (PCI:0000:3b:00): 63, pid=1896, Row Remapper: New row marked for remapping,"
    " reset gpu to activate."
)
NOT_REMAPPED = "NVRM: Xid (PCI:0000:3b:00): 64, pid=1896, Row Remapper: Failed to remap row"
GSP = (
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=1284, name=VLLM::EngineCor, Timeout after 6s of waiting"
    " for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x4)."
)
PAGE_FAULT = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=2280, name=python3, Ch 00000008, intr 00000000. MMU Fault:"
    " ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fa3_1c000000."
)
OLD_FORM = "NVRM: Xid (0000:03:00): 14, Channel 00000001"
MEMORY = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"
OOM = (
    "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:91234567kB, anon-rss:64321000kB"
)


def logged(at: datetime, *said: str) -> str:
    """Lines of the kernel's log a second apart, as ``journalctl -o short-iso-precise`` has them."""
    return "".join(
        f"{at + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S.%f%z} gpu-7 kernel: {line}\n"
        for n, line in enumerate(said)
    )


def dmesg(at: datetime, *said: str) -> str:
    """The same, as ``dmesg --time-format iso`` has it."""
    return "".join(
        f"{at + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S,%f}+00:00 {line}\n"
        for n, line in enumerate(said)
    )


def smi(*gpus: str, attached: int | None = None) -> str:
    """``nvidia-smi -q`` of a driver of branch 570, shortened; ``gpus`` as ``gpu`` writes them."""
    count = len(gpus) if attached is None else attached
    head = (
        "\n==============NVSMI LOG==============\n\n"
        "Timestamp                                 : Mon Nov 30 12:00:00 2026\n"
        "Driver Version                            : 570.124.06\n"
        "CUDA Version                              : 12.8\n\n"
        f"Attached GPUs                             : {count}\n"
    )
    return head + "".join(gpus)


def gpu(
    bus: str = "3B",
    *,
    uuid: str = "GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    recovery: str | None = "None",
    uncorrectable: int = 0,
    pending: str = "No",
    failed: str = "No",
    blacklist: str = "N/A",
    sram: str = "No",
    reset: str | None = None,
) -> str:
    action = f"    GPU Recovery Action                   : {recovery}\n" if recovery else ""
    status = (
        "    GPU Reset Status\n"
        f"        Reset Required                    : {reset}\n"
        "        Drain and Reset Recommended       : No\n"
        if reset
        else ""
    )
    return (
        f"GPU 00000000:{bus}:00.0\n"
        "    Product Name                          : NVIDIA H100 80GB HBM3\n"
        "    Persistence Mode                      : Enabled\n"
        "    MIG Mode\n"
        "        Current                           : Disabled\n"
        "        Pending                           : Disabled\n"
        f"    GPU UUID                              : {uuid}\n"
        "    Minor Number                          : 0\n"
        f"{action}{status}"
        "    ECC Mode\n"
        "        Current                           : Enabled\n"
        "        Pending                           : Enabled\n"
        "    ECC Errors\n"
        "        Volatile\n"
        "            SRAM Correctable              : 0\n"
        "            SRAM Uncorrectable Parity     : 0\n"
        "            SRAM Uncorrectable SEC-DED    : 0\n"
        "            DRAM Correctable              : 177\n"
        f"            DRAM Uncorrectable            : {uncorrectable}\n"
        "        Aggregate\n"
        "            SRAM Correctable              : 0\n"
        "            SRAM Uncorrectable Parity     : 0\n"
        "            DRAM Correctable              : 177\n"
        "            DRAM Uncorrectable            : 3\n"
        f"            SRAM Threshold Exceeded       : {sram}\n"
        "    Retired Pages\n"
        "        Single Bit ECC                    : N/A\n"
        "        Double Bit ECC                    : N/A\n"
        f"        Pending Page Blacklist            : {blacklist}\n"
        "    Remapped Rows\n"
        "        Correctable Error                 : 1\n"
        "        Uncorrectable Error               : 0\n"
        f"        Pending                           : {pending}\n"
        f"        Remapping Failure Occurred        : {failed}\n"
        "        Bank Remap Availability Histogram\n"
        "            Max                           : 639 bank(s)\n"
        "    Processes\n"
        "        GPU instance ID                   : N/A\n"
        "        Process ID                        : 4242\n"
        "            Type                          : C\n"
        "            Name                          : VLLM::EngineCore\n"
    )


LOST = (
    "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to"
    " recover this GPU\n"
)
LOST_ONE = "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n"
NO_DEVICES = "No devices were found\n"
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n"
)
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that"
    " the latest NVIDIA driver is installed and running.\n"
)
