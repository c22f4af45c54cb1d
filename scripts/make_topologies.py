#!/usr/bin/env python3
"""Makes the nodes of tests/data/topologies: shapes of real machines, in hwloc's and NCCL's XML.

usage: scripts/make_topologies.py [FOLDER]
"""

import os
import sys

GPU, CARD, SWITCH, NVSWITCH = '0302', '0207', '0604', '0680'
H100, A100, V100, AMD_GPU, CONNECTX = '10de:2330', '10de:20b2', '10de:1db8', '1002:740c', '15b3:1021'


def mask(cpus):
    """CPUs as hwloc writes them: groups of 32 bits, the highest first."""
    value = sum(1 << cpu for cpu in cpus)
    groups = []
    while True:
        groups.insert(0, '0x%08x' % (value & 0xffffffff))
        value >>= 32
        if value == 0:
            return ','.join(groups)


class Machine:
    """n_packages of n_numa NUMA nodes each, of n_cores cores each, with `threads` a core: Linux numbers
    all first threads, then all second ones."""

    def __init__(self, n_packages, n_numa, n_cores, threads=1, node_ids=None, with_cores=True):
        self.n_packages, self.n_numa, self.n_cores, self.threads = n_packages, n_numa, n_cores, threads
        self.node_ids = node_ids or list(range(n_packages * n_numa))
        self.with_cores = with_cores
        self.roots = {}  # position of the NUMA node, or 'machine' -> texts of roots
        self.index = 0

    def cpus_of_core(self, core):
        n_all = self.n_packages * self.n_numa * self.n_cores
        return [core + thread * n_all for thread in range(self.threads)]

    def cpus_of(self, nodes):
        return [cpu for node in nodes for core in range(node * self.n_cores, (node + 1) * self.n_cores)
                for cpu in self.cpus_of_core(core)]

    def object(self, kind, attributes, *children):
        self.index += 1
        head = '<object type="%s" %s gp_index="%d"' % (kind, attributes, self.index)
        inner = [child for child in children if child]
        if not inner:
            return head + '/>'
        return head + '>\n' + '\n'.join('  ' + line for text in inner for line in text.split('\n')) + '\n</object>'

    def device(self, bus_id, pci_class, ids, *children, speed='63.015385'):
        return self.object('PCIDev', 'pci_busid="%s" pci_type="%s [%s] [%s] a1" pci_link_speed="%s"'
                           % (bus_id, pci_class, ids, ids, speed), *children)

    def gpu(self, bus_id, ids=H100):
        return self.device(bus_id, GPU, ids)

    def card(self, bus_id, name):
        return self.device(bus_id, CARD, CONNECTX,
                           self.object('OSDev', 'name="%s" osdev_type="3"' % name))

    def bridge(self, bus_id, *children):
        return self.object('Bridge', 'bridge_type="1-1" depth="1" bridge_pci="0000:[00-ff]" pci_busid="%s" '
                           'pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.015385"' % bus_id, *children)

    def add_root(self, place, bus, *children):
        self.roots.setdefault(place, []).append(
            self.object('Bridge', 'bridge_type="0-1" depth="0" bridge_pci="0000:[%02x-%02x]"' % (bus, bus), *children))

    def sets(self, nodes):
        return 'cpuset="%s" complete_cpuset="%s" nodeset="%s" complete_nodeset="%s"' % (
            (mask(self.cpus_of(nodes)),) * 2 + (mask(sorted(self.node_ids[node] for node in nodes)),) * 2)

    def cores(self, node):
        if not self.with_cores:
            return []
        texts = []
        for core in range(node * self.n_cores, (node + 1) * self.n_cores):
            cpus = self.cpus_of_core(core)
            units = [self.object('PU', 'os_index="%d" cpuset="%s" complete_cpuset="%s"' % (cpu, mask([cpu]), mask([cpu])))
                     for cpu in cpus]
            texts.append(self.object('Core', 'os_index="%d" cpuset="%s" complete_cpuset="%s"'
                                     % (core, mask(cpus), mask(cpus)), *units))
        return texts

    def node(self, node):
        memory = self.object('NUMANode', 'os_index="%d" %s local_memory="68719476736"'
                             % (self.node_ids[node], self.sets([node])))
        inside = [memory] + self.cores(node) + self.roots.get(node, [])
        if self.n_numa == 1:
            return inside
        return [self.object('Group', self.sets([node]) + ' kind="0" subkind="0"', *inside)]

    def xml(self):
        every = range(self.n_packages * self.n_numa)
        packages = []
        for package in range(self.n_packages):
            nodes = range(package * self.n_numa, (package + 1) * self.n_numa)
            packages.append(self.object('Package', 'os_index="%d" %s' % (package, self.sets(nodes)),
                                        *[text for node in nodes for text in self.node(node)]))
        allowed = 'allowed_cpuset="%s" allowed_nodeset="%s"' % (mask(self.cpus_of(every)), mask(sorted(self.node_ids)))
        machine = self.object('Machine', 'os_index="0" %s %s' % (self.sets(every), allowed),
                              *(packages + self.roots.get('machine', [])))
        return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                '<!-- Made by scripts/make_topologies.py. -->\n<topology version="2.0">\n%s\n</topology>\n' % machine)


def dgx_h100():
    """Eight roots, a GPU and a card behind a switch each; NVSwitches; a card for storage far from all GPUs."""
    m = Machine(2, 1, 56, threads=2)
    for i, bus in enumerate([0x18, 0x40, 0x4f, 0x5e, 0x9a, 0xc0, 0xce, 0xdc]):
        at = lambda offset, port=0: '0000:%02x:%02x.0' % (bus + offset, port)
        m.add_root(i // 4, bus, m.bridge(at(0, 1), m.bridge(at(1), m.bridge(at(2), m.gpu(at(3))),
                                                              m.bridge(at(2, 4), m.card(at(4), 'mlx5_%d' % i)))))
    m.add_root(0, 0x05, m.bridge('0000:05:01.0', *[m.bridge('0000:06:0%d.0' % i, m.device('0000:%02x:00.0' % (7 + i), NVSWITCH, '10de:22a3'))
                                                  for i in range(4)]))
    m.add_root(1, 0x80, m.bridge('0000:80:01.0', m.card('0000:81:00.0', 'mlx5_8')))
    return m.xml()


def two_per_bridge(with_cores=True):
    m = Machine(2, 1, 12, threads=2, with_cores=with_cores)
    for i, bus in enumerate([0x10, 0x20, 0x90, 0xa0]):
        at = lambda offset, port=0: '0000:%02x:%02x.0' % (bus + offset, port)
        m.add_root(i // 2, bus, m.bridge(at(0, 1), m.bridge(at(1), m.bridge(at(2), m.gpu(at(3), A100)),
                                                              m.bridge(at(2, 1), m.gpu(at(4), A100)),
                                                              m.bridge(at(2, 2), m.card(at(5), 'mlx5_%d' % i)))))
    return m.xml()


def four_numa():
    """The GPUs with the lowest bus ids are near NUMA node 3: numbers say nothing of nearness."""
    m = Machine(2, 4, 8)
    for bus, node in [(0x01, 3), (0x21, 1), (0x81, 7), (0xa1, 5)]:
        at = lambda offset, port=0: '0000:%02x:%02x.0' % (bus + offset, port)
        m.add_root(node, bus, m.bridge(at(0, 1), m.bridge(at(1), m.gpu(at(2), A100)),
                                       m.bridge(at(1, 1), m.gpu(at(3), A100)), m.bridge(at(1, 2), m.card(at(4), 'mlx5_%d' % node))))
    return m.xml()


def swapped_numa():
    """NUMA node 1 has the lower CPUs and the GPU with the lower bus id."""
    m = Machine(2, 1, 8, node_ids=[1, 0])
    m.add_root(0, 0x17, m.bridge('0000:17:00.0', m.gpu('0000:18:00.0', A100)))
    m.add_root(1, 0xb3, m.bridge('0000:b3:00.0', m.gpu('0000:b4:00.0', A100)))
    return m.xml()


def amd_only():
    m = Machine(2, 1, 8, threads=2)
    for i, bus in enumerate([0x20, 0x40, 0xa0, 0xc0]):
        m.add_root(i // 2, bus, m.bridge('0000:%02x:01.0' % bus, m.device('0000:%02x:00.0' % (bus + 1), '0380', AMD_GPU)))
    return m.xml()


def no_gpu():
    m = Machine(2, 1, 5)
    m.add_root(0, 0x00, m.device('0000:00:1f.0', '0200', '8086:1521', m.object('OSDev', 'name="eth0" osdev_type="2"')))
    return m.xml()


def one_gpu():
    """A workstation: the GPU behind a port of the root complex, a service processor's screen beside it."""
    m = Machine(1, 1, 6, threads=2)
    m.add_root(0, 0x00, m.bridge('0000:00:01.0', m.gpu('0000:01:00.0', '10de:20f1')),
               m.bridge('0000:00:1c.0', m.device('0000:02:00.0', '0300', '1a03:2000')))
    return m.xml()


def sixteen_gpus():
    """Four roots of four GPUs, two switches deep, and NVSwitches."""
    m = Machine(2, 1, 24)
    for i, bus in enumerate([0x30, 0x50, 0xb0, 0xd0]):
        at = lambda offset, port=0: '0000:%02x:%02x.0' % (bus + offset, port)
        pairs = [m.bridge(at(2, pair), m.bridge(at(3 + 4 * pair), *[
            m.bridge(at(4 + 4 * pair, unit), m.gpu(at(5 + 4 * pair + unit), V100)) for unit in range(2)]))
            for pair in range(2)]
        m.add_root(i // 2, bus, m.bridge(at(0), m.bridge(at(1), *pairs)))
    m.add_root(0, 0x10, *[m.device('0000:10:%02x.0' % i, NVSWITCH, '10de:1ac2') for i in range(6)])
    return m.xml()


def flat_bus():
    """A virtual machine: everything on one bus, near no NUMA node."""
    m = Machine(2, 1, 8)
    m.add_root('machine', 0x00, *[m.gpu('0000:00:%02x.0' % (5 + i), A100) for i in range(4)])
    return m.xml()


def nccl_mask(cpus):
    return ','.join(group[2:] for group in mask(cpus).split(','))


def nccl(nodes):
    """nodes: (NUMA id, CPUs, text of <pci> elements)."""
    texts = ['  <cpu numaid="%d" affinity="%s" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">\n%s\n  </cpu>'
             % (node, nccl_mask(cpus), '\n'.join(inner)) for node, cpus, inner in nodes]
    return '<!-- Made by scripts/make_topologies.py. -->\n<system version="1">\n%s\n</system>\n' % '\n'.join(texts)


def nccl_gpu(bus_id, links):
    """links: (target, count, class of the target)."""
    inner = ''.join('<nvlink target="%s" count="%d" tclass="0x%s00"/>' % link for link in links)
    return ('    <pci busid="%s" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16.0 GT/s PCIe" link_width="16">'
            '<gpu dev="0" sm="80" rank="0" gdr="1">%s</gpu></pci>' % (bus_id, inner))


def nvlink_pairs():
    """Cards with NVLink bridges, which join GPUs of different roots: 0-2 and 1-3."""
    ids = ['0000:17:00.0', '0000:65:00.0', '0000:ca:00.0', '0000:e3:00.0']
    partner = [2, 3, 0, 1]
    gpus = [nccl_gpu(bus_id, [(ids[partner[i]], 12, '0302')]) for i, bus_id in enumerate(ids)]
    card = ('    <pci busid="0000:31:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">'
            '<nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic></pci>')
    return nccl([(0, range(0, 8), gpus[:2] + [card]), (1, range(8, 16), gpus[2:])])


def nccl_swapped():
    """NUMA node 0 with the upper CPUs, and masks that overlap on CPU 8."""
    return nccl([(0, range(8, 16), [nccl_gpu('0000:17:00.0', [('0000:06:00.0', 4, '0680')])]),
                 (1, range(0, 9), [nccl_gpu('0000:ca:00.0', [('0000:07:00.0', 6, '0680')])])])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), '../tests/data/topologies')
    made = {'dgx-h100': dgx_h100(), 'two-per-bridge': two_per_bridge(), 'stripped-cores': two_per_bridge(False),
            'four-numa': four_numa(), 'swapped-numa': swapped_numa(), 'amd-only': amd_only(), 'no-gpu': no_gpu(),
            'one-gpu': one_gpu(), 'sixteen-gpus': sixteen_gpus(), 'flat-bus': flat_bus(),
            'nccl-nvlink-pairs': nvlink_pairs(), 'nccl-swapped': nccl_swapped()}
    for name, text in made.items():
        with open(os.path.join(folder, name + '.xml'), 'w', encoding='ascii') as file:
            file.write(text)


if __name__ == '__main__':
    main()
