/** The page's only way to the main process; it sees none of Electron itself. */

const { contextBridge, ipcRenderer } = require('electron');

contextBridge.exposeInMainWorld('pageloomDesktop', {
  openModel: () => ipcRenderer.invoke('pageloom:open-model'),
  /** @param {string} name @param {string} text */
  save: (name, text) => ipcRenderer.invoke('pageloom:save', name, text),
  /** @param {string} backend */
  startWorker: (backend) => ipcRenderer.invoke('pageloom:start-worker', backend),
  stopWorker: () => ipcRenderer.invoke('pageloom:stop-worker'),
  /** @param {(file: {url: string, name: string}) => void} callback  Gets each model file that the system opens. */
  onOpened: (callback) => {
    ipcRenderer.on('pageloom:opened', (_event, file) => callback(file));
    ipcRenderer.send('pageloom:ready');
  },
});
